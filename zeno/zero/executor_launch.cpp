// Queues a step on the streams. The calling thread queues the lanes that compute and communicate. Each lane
// that moves states has a thread that queues it: it has hundreds of copies, a GPU accepts 1021 operations per
// stream (copies, kernels, timed marks, written words; H200, driver 580), and the thread that queues one more
// blocks until the link has moved one. The computation of the next step must not wait for that.
#include <algorithm>
#include <bit>

#include "zeno/base/error.h"
#include "zeno/zero/executor.h"

namespace zeno::zero {
namespace {

// What the recorded part of a step depends on besides the program.
std::vector<double> graph_key(const StepInputs& inputs) {
  std::vector<double> key{inputs.loss_scale / double(std::max<int64_t>(1, inputs.valid_tokens))};
  for (const nn::Batch& batch : inputs.batches) {
    key.push_back(double(batch.valid_count));
    // Attention plans are made for powers of two of documents, and separate ones for batches without a count.
    key.push_back(batch.documents == 0 ? 0 : double(std::bit_ceil(uint64_t(batch.documents))));
  }
  return key;
}

}  // namespace

// A step waits for the one before as its program says; between two programs all lanes wait for all.
Executor::Step Executor::start_step(const Program& program, const StepInputs& inputs) {
  ensure(launched_ - waited_ < kDepth, "[executor] {} steps are queued, expected at most {}",
         launched_ - waited_, kDepth);
  const Step step{launched_, running_ == &program, StepClock::kNone, std::make_shared<StepInputs>(inputs)};
  if (step.carries) {
    // After this, no thread waits for the events that this step records again.
    await_queues(step.number - 1);
    return step;
  }
  drain();
  running_ = &program;
  for (const auto& stream : streams_) {
    if (stream) settle_on(*stream);
  }
  return step;
}

// After a step that was queued only in part, nothing can be launched.
void Executor::guard(const std::function<void()>& body) {
  try {
    body();
  } catch (...) {
    progress_.give_up(std::current_exception());
    progress_.rethrow();
  }
}

void Executor::launch(const StepInputs& inputs) {
  guard([&] {
    Step step = start_step(parts_.program, inputs);
    step.marks = clock_.begin(slot_of(step), compute());
    if (replayable(step)) {
      graph_.replay(compute());
    } else {
      queue(step, 0, constant_end_);
    }
    if (until_read_) {
      until_read_();
      hold(state_read_);
    }
    queue(step, constant_end_, parts_.program.instructions.size());
    clock_.end(step.marks, compute());
    finish_step(step);
  });
}

void Executor::launch_evaluation(const StepInputs& inputs) {
  guard([&] {
    Step step = start_step(parts_.evaluation, inputs);
    step.marks = clock_.skip(slot_of(step));
    queue(step, 0, parts_.evaluation.instructions.size());
    finish_step(step);
  });
}

// Records the constant part when a step is like the previous one, so that a run whose steps all differ never
// pays for recording.
bool Executor::replayable(const Step& step) {
  if (parts_.mesh.ranks() > 1 || lanes_ > 1 || parts_.timing == Timing::every ||
      !Graph::supported(parts_.device))
    return false;
  std::vector<double> key = graph_key(*step.inputs);
  const bool same = key == graph_key_;
  graph_key_ = std::move(key);
  if (!same) {
    graph_ = Graph();
    return false;
  }
  if (!graph_.recorded()) {
    graph_.begin(compute());
    queue(step, 0, constant_end_);
    graph_.end(compute());
  }
  return true;
}

void Executor::queue(const Step& step, size_t begin, size_t end) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if (queues_[size_t(lane)])
      post(Lane(lane),
           [=, this] { queue_lanes(step, begin, end, [&](Lane other) { return other == Lane(lane); }); });
  }
  if (!queue_lanes(step, begin, end, [&](Lane lane) { return !queues_[size_t(lane)]; })) progress_.rethrow();
}

void Executor::post(Lane lane, std::function<void()> task) {
  queues_[size_t(lane)]->ref().launch([this, task = std::move(task)](Workers&) {
    try {
      choose_device(parts_.device);
      task();
    } catch (...) {
      progress_.give_up(std::current_exception());
    }
  });
}

// Returns false if a thread that queues has failed.
bool Executor::queue_lanes(const Step& step, size_t begin, size_t end,
                           const std::function<bool(Lane)>& mine) {
  const std::vector<Instruction>& list = running_->instructions;
  const auto queued = [&](int i, int64_t number) {
    return progress_.await(list[size_t(i)].lane, number * int64_t(length_) + i + 1);
  };
  std::vector<Event>& events = events_[size_t(step.number % kEventSets)];
  const std::vector<Event>& earlier = events_[size_t((step.number + kEventSets - 1) % kEventSets)];
  for (size_t i = begin; i < end; ++i) {
    const Instruction& in = list[i];
    if (!mine(in.lane)) continue;
    if (progress_.given_up()) return false;
    const std::span<const int> carried(in.carried.data(), step.carries ? in.carried.size() : 0);
    for (int wait : in.waits)
      if (!queued(wait, step.number)) return false;
    for (int wait : carried)
      if (!queued(wait, step.number - 1)) return false;
    const StreamRef lane = stream(in.lane);
    clock_.reach(step.marks, i, lane);
    for (int wait : in.waits) lane.wait(events[size_t(wait)]);
    for (int wait : carried) lane.wait(earlier[size_t(wait)]);
    clock_.start(step.marks, i, lane);
    dispatch(in, lane, step);
    clock_.finish(step.marks, i, lane);
    if (!in.signals) continue;
    events[i].record(lane);
    progress_.reach(in.lane, step.number * int64_t(length_) + int64_t(i) + 1);
  }
  return true;
}

// Lanes that write states wait for `event`.
void Executor::hold(const Event& event) {
  for (Lane lane : {Lane::compute, Lane::update, Lane::store, Lane::write, Lane::host}) {
    if (!streams_[size_t(lane)]) continue;
    const auto wait = [stream = stream(lane), event] { stream.wait(event); };
    if (queues_[size_t(lane)]) {
      post(lane, wait);
    } else {
      wait();
    }
  }
}

void Executor::finish_step(const Step& step) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if (queues_[size_t(lane)])
      post(Lane(lane),
           [this, lane, end = (step.number + 1) * int64_t(length_)] { progress_.reach(Lane(lane), end); });
  }
  for (Lane lane : kLanesOfSteps) {
    if (streams_[size_t(lane)]) lane_ends_[size_t(lane)].record(stream(lane));
  }
  step_ends_[size_t(slot_of(step))].record(compute());
  ++launched_;
}

void Executor::await_queues(int64_t steps) const {
  for (int lane = 0; lane < kLanes; ++lane) {
    if (queues_[size_t(lane)]) progress_.await(Lane(lane), steps * int64_t(length_));
  }
  progress_.rethrow();
}

}  // namespace zeno::zero
