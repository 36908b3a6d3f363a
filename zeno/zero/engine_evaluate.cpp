// Evaluation: the forward half of a step, round after round, with sums that stay on the device to the end.
#include "zeno/base/error.h"
#include "zeno/zero/engine.h"

namespace zeno::zero {

std::optional<EvalResult> Engine::evaluate(int64_t rounds, const BatchReader& batches,
                                           const std::function<bool()>& stop) {
  ensure(under_way_.empty(), "[engine] evaluation: got {} steps under way, expected none", under_way_.size());
  store_.flush();
  EvalResult result;
  StepOutcome outcome;
  bool stopped = false;
  int64_t queued = 0;
  for (int64_t round = 0; round < rounds; ++round) {
    const std::vector<MicroBatch> views = batches(round);
    ensure(int(views.size()) == policy_.micro_batches, "[engine] got {} micro-batches, expected {}",
           views.size(), policy_.micro_batches);
    stopped = agree_on_batch(views, {.wishes = {.stop = stop && stop()}}).stop;
    if (stopped) break;
    result.tokens += step_.valid_tokens;
    upload(views);
    step_.continues = round > 0;
    try {
      executor_->launch_evaluation(step_);
    } catch (const std::exception& error) {
      world_.fail(error.what());
      throw;
    }
    // The host prepares one round while the device runs another.
    if (queued == Executor::kDepth - 1) {
      outcome = wait();
    } else {
      ++queued;
    }
  }
  for (; queued > 0; --queued) outcome = wait();
  traffic_ = executor_->traffic();
  if (stopped) return std::nullopt;
  result.loss = result.tokens > 0 ? outcome.loss_sum / double(result.tokens) : 0;
  result.hits = outcome.hits;
  return result;
}

}  // namespace zeno::zero
