#include "zeno/zero/program.h"

#include <fmt/format.h>

#include <algorithm>

#include "zeno/kernels/nf4.h"

namespace zeno::zero {
namespace {

// What a rank has of the chunks when they are sharded over `axes`, in elements or in bytes of cells.
int64_t sum_of_parts(const ChunkRange& chunks, const Group& group, comm::Axes axes) {
  int64_t sum = 0;
  for (int c = chunks.first; c < chunks.first + chunks.count; ++c) {
    const int64_t part = group.partition.part(group.partition.chunks()[size_t(c)], 0, axes).count;
    sum += group.nf4 ? int64_t(nf4_bytes(part)) : part;
  }
  return sum;
}

}  // namespace

bool Program::uses(Lane lane) const {
  return std::ranges::any_of(instructions, [&](const Instruction& in) { return in.lane == lane; });
}

std::string describe(const Program& program, const UnitTable& units) {
  std::string text;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& in = program.instructions[i];
    text += fmt::format("{:5} {:<8} {}", i, name_of(in.lane), describe(in, units));
    for (int wait : in.waits) text += fmt::format(" <-{}", wait);
    for (int wait : in.carried) text += fmt::format(" <=={}", wait);
    text += '\n';
  }
  return text;
}

ProgramTraffic traffic_of(const Program& program, const UnitTable& units, const comm::Mesh& mesh) {
  ProgramTraffic traffic;
  // The parts of the others along `over`, where a part of all of them together is one over `sharded`.
  const auto received = [&](const ChunkRange& chunks, comm::Axes sharded, comm::Axes over) {
    return sum_of_parts(chunks, units.groups[size_t(chunks.group)], sharded | over) * (mesh.size(over) - 1);
  };
  for (const Instruction& in : program.instructions) {
    if (const Gather* gather = in.as<Gather>()) {
      const bool cells = units.groups[size_t(gather->chunks.group)].nf4;
      (cells ? traffic.nf4_bytes : traffic.gathered) +=
          received(gather->chunks, gather->sharded, gather->over);
    }
    if (const Reduce* reduce = in.as<Reduce>()) {
      for (const Reduce::Summand& summand : reduce->bucket)
        traffic.reduced +=
            (reduce->scatter ? 1 : 2) * received(summand.chunks, reduce->sharded, reduce->over);
    }
    if (const GatherSums* gather = in.as<GatherSums>()) {
      for (const ChunkRange& chunks : gather->bucket) traffic.reduced += received(chunks, {}, gather->over);
    }
  }
  return traffic;
}

}  // namespace zeno::zero
