// Going on from a checkpoint that DeepSpeed wrote: masters, Adam's moments, step count and loss scale, at any
// number of ranks and any stage. Collective: all ranks take it, or none.
#pragma once

#include <optional>

#include "zeno/train/saving/resume.h"

namespace zeno::train {

// Nothing when DeepSpeed did not write the folder; Error(data) when it did and cannot be read.
std::optional<ResumePoint> find_deepspeed_point(const Path& folder, comm::World& world);

// Fills the engine and returns where the run stands. `now` is the resumed run: DeepSpeed does not keep which
// sample a step saw, so the data is this run's own, from the same step number on.
RunState restore_deepspeed(const ResumePoint& point, const RunState& now, zero::Engine& engine,
                           comm::World& world);

}  // namespace zeno::train
