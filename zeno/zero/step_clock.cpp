#include "zeno/zero/step_clock.h"

#include <algorithm>
#include <chrono>

namespace zeno::zero {
namespace {

// The marks of a set: the begin and the end of the step on the compute lane, then three for each instruction.
constexpr size_t kBegin = 0, kEnd = 1, kFirst = 2;
enum Mark : size_t { ready, started, done, kMarks };
constexpr size_t mark_of(size_t i, Mark mark) { return kFirst + kMarks * i + mark; }

constexpr double kNever = -1;
// The time between two marks of a GPU with nothing to wait for.
constexpr double kMarkUs = 3;

double now_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

}  // namespace

StepClock::StepClock(const Program& program, const Options& options)
    : options_(options),
      whole_(options.timing == Timing::sampled && options.lanes == 1 && options.ranks == 1),
      set_marks_(whole_ ? kFirst : mark_of(program.instructions.size(), ready)),
      sets_(size_t(options.depth), kNone),
      exposed_(program),
      known_(program.instructions.size()) {
  if (options.timing == Timing::none) return;
  stopwatch_ = make_stopwatch(options.device, size_t(options.depth) * set_marks_);
  queueing_us_.resize(size_t(options.depth) * known_.size(), kNever);
}

int StepClock::begin(int slot, StreamRef compute) {
  const int set = is_timed(options_.timing, steps_++) ? int(timed_++ % options_.depth) : kNone;
  sets_[size_t(slot)] = set;
  if (set != kNone) stopwatch_->mark(compute, index(set, kBegin));
  return set;
}

void StepClock::end(int set, StreamRef compute) {
  if (set != kNone) stopwatch_->mark(compute, index(set, kEnd));
}

void StepClock::reach(int set, size_t i, StreamRef lane) {
  if (!marks(set, lane.device())) return;
  stopwatch_->mark(lane, index(set, mark_of(i, ready)));
  queueing_us_[place(set, i)] = now_us();
}

void StepClock::start(int set, size_t i, StreamRef lane) {
  if (!marks(set, lane.device())) return;
  stopwatch_->mark(lane, index(set, mark_of(i, started)));
  double& queueing = queueing_us_[place(set, i)];
  queueing = now_us() - queueing;
}

void StepClock::finish(int set, size_t i, StreamRef lane) {
  if (marks(set, lane.device())) stopwatch_->mark(lane, index(set, mark_of(i, done)));
}

// A GPU that is faster than the host is idle at an instruction while its waits are still being queued. That
// time is not a wait for other lanes.
InstructionTime StepClock::time_of(int set, size_t i, double begin_us) const {
  const double queueing = queueing_us_[place(set, i)];
  if (queueing == kNever) return {};
  const size_t begin = index(set, kBegin);
  const auto us = [&](Mark mark) {
    return begin_us + stopwatch_->since(begin, index(set, mark_of(i, mark)));
  };
  InstructionTime time{.ready = us(ready), .start = us(started), .end = us(done)};
  if (options_.device.kind == Device::Kind::cuda)
    time.ready = std::min(time.start, time.ready + queueing + kMarkUs);
  return time;
}

std::optional<StepTimes> StepClock::read(int slot) {
  const int set = sets_[size_t(slot)];
  if (set == kNone) return std::nullopt;
  if (whole_) return StepTimes{.compute = stopwatch_->since(index(set, kBegin), index(set, kEnd)) / 1000};
  std::fill(known_.begin(), known_.end(), std::nullopt);
  const double begin_us = stopwatch_->us(index(set, kBegin));
  return exposed_.add([&](int i) {
    std::optional<InstructionTime>& time = known_[size_t(i)];
    if (!time) time = time_of(set, size_t(i), begin_us);
    return *time;
  });
}

std::vector<InstructionTime> StepClock::times() const {
  std::vector<InstructionTime> times;
  if (whole_ || timed_ == 0) return times;
  const int set = int((timed_ - 1) % options_.depth);
  const double begin_us = stopwatch_->us(index(set, kBegin));
  for (size_t i = 0; i < known_.size(); ++i) times.push_back(time_of(set, i, begin_us));
  return times;
}

}  // namespace zeno::zero
