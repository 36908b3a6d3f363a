// Going on from a checkpoint: which one, what of the config it decides, and filling an engine from it.
// Collective where it says so: all ranks take the same one, or none.
#pragma once

#include <optional>
#include <vector>

#include "zeno/base/file.h"
#include "zeno/comm/world.h"
#include "zeno/config/config_parser.h"
#include "zeno/train/saving/run_state.h"
#include "zeno/zero/engine.h"

namespace zeno::train {

// Folder of a run's checkpoints.
Path checkpoints_of(const config::RunConfig& run);

// The model folder that the run of a checkpoint started from.
std::string base_model_of(const Path& checkpoint);

// Does --resume name the newest checkpoint of the output folder, in one way or another? If not, a later
// --resume auto would take that one for this run's.
bool goes_on_from(const config::RunConfig& run, const Path& newest);

// Checkpoints that a run may resume from, the newest first, and where the newest whole one stands.
struct ResumePoint {
  std::vector<Path> folders;
  RunState state;
  bool deepspeed = false;  // the only folder is one of DeepSpeed's (deepspeed_resume.h)
};

// Collective. --resume auto: those of the output folder and those `in_memory` (peer_folder.h), nothing when
// there is none; a folder: that one, which must be whole.
std::optional<ResumePoint> find_resume_point(const config::RunConfig& run, const std::vector<Path>& in_memory,
                                             comm::World& world);

// The global batch stays the same: with another number of ranks the accumulation changes, and the micro-batch
// only if necessary. What the user gives wins, and is then held against the checkpoint.
void adopt_batch(config::ParsedConfig& parsed, const RunState& saved, int batch_ranks);

// Where the planner chooses, micro-batch, stage and order stay what they were, since they decide the order of
// sums. What the user gives wins.
void adopt_setting(config::ParsedConfig& parsed, const RunState& saved);

// Collective: fills the engine from the newest checkpoint with every byte correct and returns its state.
// Older ones are tried when one is damaged and --resume is auto. Error(data) naming the damage when none is
// left.
RunState restore_newest(const ResumePoint& point, const RunState& now, zero::Engine& engine,
                        comm::World& world);

}  // namespace zeno::train
