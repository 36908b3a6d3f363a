// The state of a run besides its weights and moments: what a checkpoint saves so that a resumed run continues
// as if it had never stopped. Plain values; no thread rule.
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
  int64_t steps = 0;    // steps done, including skipped ones; also the position in the data
  int64_t skipped = 0;  // of these, steps that the schedule does not count
  int64_t tokens = 0, inputs = 0;
  double loss = 0;  // of the last step
  double seconds = 0, wait_s = 0;
  std::optional<config::LossScaleState> scale;  // fp16
  LossWatch::State watch;
};

struct RunState {
  LoopState loop;
  EarlyStopping::State stopping;
  int64_t evaluated = -1;  // the last evaluated step; a run may be stopped during an evaluation
  int64_t saved_step = 0;  // the step whose model is in the output folder
  // These decide which samples a step uses, and must be the same in the resumed run.
  int64_t train_batch = 0, micro_batch = 0, seq_len = 0, seed = 0, sequences = 0;
  // These decide the order of sums; -1 and empty: an older checkpoint, or DeepSpeed's.
  int64_t stage = -1;
  std::string order;
  std::string model;      // the folder it started from
  std::string adapter;    // adapter_config.json without that folder, if only an adapter is trained
  bool nf4 = false;       // the frozen base model is stored in NF4
  std::string optimizer;  // the optimizer of the moments; empty: an older checkpoint, or DeepSpeed's
};

// To a JSON object and back. Error(data) texts start with `where`.
std::string to_json(const RunState& state);
RunState parse_run_state(std::string_view json, std::string_view where);

// Error(usage) with the first setting in which the resumed run would differ.
void require_same_run(const RunState& saved, const RunState& now, std::string_view where);

}  // namespace zeno::train
