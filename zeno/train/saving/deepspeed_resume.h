// Resumes from a checkpoint that DeepSpeed wrote: masters, Adam's moments, step count and loss scale, with
// any number of ranks and any stage. Collective: all ranks resume from it, or none.
#pragma once

#include <optional>

#include "zeno/train/saving/resume.h"

namespace zeno::train {

// Returns nothing if DeepSpeed did not write the folder; Error(data) if it did and the folder cannot be read.
std::optional<ResumePoint> find_deepspeed_point(const Path& folder, comm::World& world);

// Fills the engine and returns the state of the run. `now` is the resumed run: DeepSpeed does not save which
// samples a step used, so the data is that of this run, from the same step number on.
RunState restore_deepspeed(const ResumePoint& point, const RunState& now, zero::Engine& engine,
                           comm::World& world);

}  // namespace zeno::train
