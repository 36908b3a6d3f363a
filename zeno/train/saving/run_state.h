// The state of a run, besides its weights and moments: what a checkpoint carries so that the run continues as
// if it had never stopped. Plain values; no thread rule.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/config/loss_scale.h"
#include "zeno/train/early_stopping.h"
#include "zeno/train/loss_watch.h"

namespace zeno::train {

struct LoopState {
  int64_t steps = 0;    // done, skipped ones included: the place in the data too
  int64_t skipped = 0;  // of them: the schedule does not count these
  int64_t tokens = 0, inputs = 0;
  double loss = 0;  // of the last step
  double seconds = 0, wait_s = 0;
  std::optional<config::LossScaleState> scale;  // fp16
  LossWatch::State watch;
};

struct RunState {
  LoopState loop;
  EarlyStopping::State stopping;
  int64_t evaluated = -1;  // the last step that was evaluated: a stop may fall into an evaluation
  int64_t saved_step = 0;  // what the output folder holds
  // What decides which samples a step sees, and must be the same in the resumed run.
  int64_t train_batch = 0, micro_batch = 0, seq_len = 0, seed = 0, sequences = 0;
  // What decides the order of its sums; -1 and empty: an older checkpoint, or DeepSpeed's.
  int64_t stage = -1;
  std::string order;
  std::string model;      // the folder it started from
  std::string adapter;    // adapter_config.json without that folder, when only adapters are trained
  bool nf4 = false;       // the frozen base is kept in NF4
  std::string optimizer;  // whose moments these are; empty: an older checkpoint, or DeepSpeed's
};

// A JSON object, and back. Error(data) that starts with `where`.
std::string to_json(const RunState& state);
RunState parse_run_state(std::string_view json, std::string_view where);

// Error(usage) that names the first setting in which the resumed run would differ.
void require_same_run(const RunState& saved, const RunState& now, std::string_view where);

}  // namespace zeno::train
