// How a training run went, as plain values: what train() returns and what the last lines of its log say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "zeno/report/metrics.h"

namespace zeno::report {

struct RunSummary {
  int64_t steps = 0;  // optimizer steps that were run, skipped ones included
  double epochs = 0;
  double loss = 0;                      // of the last step
  std::optional<EvalRecord> last_eval;  // with evaluation data
  std::optional<Evaluation> best;
  double seconds = 0;                     // in steps: evaluation and saving left out
  double step_s = 0, planned_step_s = 0;  // of a step, as it was and by plan; 0: not known
  double data_wait_s = 0;     // of them, waiting for batches (the first one left out: nothing hides it)
  int64_t tokens = 0;         // that count in the loss
  int64_t num_tokens = 0;     // read
  size_t peak_bytes = 0;      // of a rank
  uint64_t weights_hash = 0;  // of the last step
  bool interrupted = false, stopped_early = false;
  int64_t saved_step = 0;  // what the output folder holds
  std::string out;         // the output folder
  std::string last;        // where an interrupted run left its last state, when `out` holds the best
  std::string advice;      // what bounds a step and what would make it faster
  bool adapter = false;    // the output is an adapter, not a whole model

  double data_wait_share() const { return seconds > 0 ? data_wait_s / seconds : 0; }
};

// One paragraph for people, and how to try the result.
std::string describe(const RunSummary& summary, const std::string& base_model);

}  // namespace zeno::report
