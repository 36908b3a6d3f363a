#include "zeno/report/step_trace.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "zeno/base/log.h"
#include "zeno/report/trace_file.h"

namespace zeno::report {

void write_step_trace(const Path& path, const zero::Engine& engine, comm::World& world) {
  const std::vector<zero::InstructionTime>& mine = engine.executor().times();
  // All ranks run the same program: times are all they need to send.
  const std::vector<std::string> all =
      world.exchange({reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(mine[0])});
  if (world.rank() != 0) return;
  if (mine.empty()) return log_warning("[trace] {}: no step was run, so there are no times", path.string());
  std::vector<TraceSpan> spans;
  const auto& instructions = engine.program().instructions;
  double zero_us = std::numeric_limits<double>::max();
  for (size_t rank = 0; rank < all.size(); ++rank) {
    for (size_t i = 0; i < instructions.size(); ++i) {
      zero::InstructionTime time;
      std::memcpy(&time, all[rank].data() + i * sizeof(time), sizeof(time));
      if (time.end == 0) continue;  // on a lane of the host, beside a GPU: not timed
      const std::string lane(zero::name_of(instructions[i].lane));
      spans.push_back({.name = zero::describe(instructions[i], engine.units()),
                       .category = std::string(zero::name_of(instructions[i])),
                       .rank = int(rank),
                       .stream = lane,
                       .start_us = time.start,
                       .duration_us = time.end - time.start,
                       .unit = engine.units().unit_names[size_t(instructions[i].unit)],
                       .micro_batch = instructions[i].micro_batch});
      zero_us = std::min(zero_us, time.start);
    }
  }
  for (TraceSpan& span : spans) span.start_us -= zero_us;
  write_trace(path, spans);
}

}  // namespace zeno::report
