// From the times of one step to the timeline of the report:
//   data.timeline = timeline_of(engine.program(), engine.units(), engine.executor().times());
#pragma once

#include <span>

#include "zeno/report/page/report_data.h"
#include "zeno/zero/executor.h"

namespace zeno::report {

// `times` belong to the program's instructions, in order; empty (a step that was not timed) gives an empty
// timeline.
Timeline timeline_of(const zero::Program& program, const zero::UnitTable& units,
                     std::span<const zero::InstructionTime> times);

// What a screen can show: neighbours on a lane that are both narrower than a pixel become one span, so that
// at most about 2 × `pixels` per lane remain.
std::vector<TimelineSpan> merge_narrow(std::vector<TimelineSpan> spans, double duration_ms, int pixels);

}  // namespace zeno::report
