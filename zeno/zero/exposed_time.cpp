#include "zeno/zero/exposed_time.h"

#include <algorithm>
#include <array>

namespace zeno::zero {

Cause cause_of(const Instruction& in) {
  if (comm_use_of(in)) return Cause::communication;
  if (in.is<Fetch>() || in.is<Store>() || in.is<GradsToHost>()) return Cause::link;
  if (in.is<Read>() || in.is<Write>()) return Cause::disk;
  return Cause::other;
}

ExposedTime::ExposedTime(const Program& program)
    : program_(program), waited_(program.instructions.size(), 0.0) {
  const std::vector<Instruction>& list = program.instructions;
  std::array<int, kLanes> last;
  last.fill(-1);
  for (int i = 0; i < int(list.size()); ++i) {
    causes_.push_back(cause_of(list[size_t(i)]));
    before_.push_back(last[size_t(list[size_t(i)].lane)]);
    last[size_t(list[size_t(i)].lane)] = i;
  }
  for (const Instruction& in : list) {
    int likely = -1;
    const auto consider = [&](int i) {
      if (likely < 0 || causes_[size_t(i)] > causes_[size_t(likely)]) likely = i;
    };
    for (int c : in.carried) {
      consider(c);
      for (int wait : list[size_t(c)].waits) {  // an update waits for what was fetched for it
        consider(wait);
        for (int first : list[size_t(wait)].waits)  // and the fetch for what was read
          if (causes_[size_t(wait)] == Cause::link && causes_[size_t(first)] == Cause::disk) consider(first);
      }
    }
    carried_.push_back(likely);
  }
}

StepTimes ExposedTime::add(const Times& times) {
  step_ = {};
  for (int i = 0; i < int(program_.instructions.size()); ++i) {
    if (program_.instructions[size_t(i)].lane != Lane::compute) continue;
    const InstructionTime time = times(i);
    if (time.start > time.ready) blame(i, time.ready, times);
    // Without overlap, ranks communicate on the compute lane itself.
    if (causes_[size_t(i)] == Cause::communication) {
      charge(i, time.end - time.start);
    } else {
      step_.compute += (time.end - time.start) / 1000;
    }
  }
  return step_;
}

// An instruction without known times that `i` may have waited for: on a lane of the host beside a GPU, or in
// the step before.
int ExposedTime::untold(int i, const Times& times) const {
  for (int wait : program_.instructions[size_t(i)].waits) {
    if (times(wait).end == 0) return wait;
  }
  return carried_[size_t(i)];
}

// Charges the wait of `i` since `from`: to the instruction that ended last, for the time it was running;
// before that, to what that one waited for, and so on.
void ExposedTime::blame(int i, double from, const Times& times) {
  double until = times(i).start;
  while (until > from) {
    int last = before_[size_t(i)];
    double end = last >= 0 ? times(last).end : 0;
    for (int wait : program_.instructions[size_t(i)].waits) {
      const double its = times(wait).end;
      if (its > end) last = wait, end = its;
    }
    const int other = untold(i, times);
    end = std::clamp(end, from, until);
    if (other >= 0 || end <= from) {
      charge(other >= 0 ? other : i, until - end);
      until = end;
    }
    if (end <= from) return;
    const double start = std::clamp(times(last).start, from, until);
    charge(last, until - start);
    until = start;
    i = last;
  }
}

void ExposedTime::charge(int i, double us) {
  const double ms = us / 1000;
  waited_[size_t(i)] += ms;
  switch (causes_[size_t(i)]) {
    case Cause::communication:
      step_.communication += ms;
      return;
    case Cause::link:
      step_.link += ms;
      return;
    case Cause::disk:
      step_.disk += ms;
      return;
    case Cause::other:
      step_.other += ms;
      return;
  }
}

}  // namespace zeno::zero
