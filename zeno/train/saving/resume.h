// Resuming from a checkpoint: which one, which values of the config it decides, and loading it into an
// engine. In calls marked collective all ranks take the same checkpoint, or none.
#pragma once

#include <optional>
#include <vector>

#include "zeno/base/file.h"
#include "zeno/comm/world.h"
#include "zeno/config/config_parser.h"
#include "zeno/train/saving/run_state.h"
#include "zeno/zero/engine.h"

namespace zeno::train {

// The folder of a run's checkpoints.
Path checkpoints_of(const config::RunConfig& run);

// The model folder that the run of a checkpoint started from.
std::string base_model_of(const Path& checkpoint);

// Whether --resume names the newest checkpoint of the output folder, in whatever form. If not, a later
// --resume auto would take that checkpoint for one of this run.
bool goes_on_from(const config::RunConfig& run, const Path& newest);

// Checkpoints that a run may resume from, newest first, and the state of the run in the newest intact one.
struct ResumePoint {
  std::vector<Path> folders;
  RunState state;
  bool deepspeed = false;  // the only folder was written by DeepSpeed (deepspeed_resume.h)
};

// Collective. --resume auto: the checkpoints of the output folder and those `in_memory` (peer_folder.h), or
// nothing if there are none. --resume with a folder: that checkpoint, which must be intact.
std::optional<ResumePoint> find_resume_point(const config::RunConfig& run, const std::vector<Path>& in_memory,
                                             comm::World& world);

// Keeps the global batch: with another number of ranks the accumulation changes, and the micro-batch only if
// necessary. Values that the user gives take precedence, and are later compared with the checkpoint.
void adopt_batch(config::ParsedConfig& parsed, const RunState& saved, int batch_ranks);

// If the planner chooses, micro-batch, stage and order stay what they were, because they decide the order of
// sums. Values that the user gives take precedence.
void adopt_setting(config::ParsedConfig& parsed, const RunState& saved);

// Collective: loads the newest checkpoint whose checksums are all correct, and returns its state. If one is
// damaged and --resume is auto, tries older ones. Error(data) with the damage if none is left.
RunState restore_newest(const ResumePoint& point, const RunState& now, zero::Engine& engine,
                        comm::World& world);

}  // namespace zeno::train
