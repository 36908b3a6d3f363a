#include "zeno/zero/program/program.h"

#include <fmt/format.h>

#include <algorithm>

#include "zeno/kernels/nf4.h"
#include "zeno/kernels/wire_cells.h"

namespace zeno::zero {
namespace {

// The elements that a rank has of the chunks when they are sharded over `axes`.
int64_t sum_of_parts(const ChunkRange& chunks, const Group& group, comm::Axes axes) {
  int64_t sum = 0;
  for (int c = chunks.first; c < chunks.first + chunks.count; ++c)
    sum += group.partition.part(group.partition.chunks()[size_t(c)], 0, axes).count;
  return sum;
}

// Parts are whole cells.
int64_t bytes_of_cells(int64_t elements, const Group& group) {
  return int64_t(group.nf4 ? nf4_bytes(elements) : wire_bytes(WireCode::int8, elements));
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
  // What the other ranks along `over` send; all parts along `over` together are one part over `sharded`.
  const auto received = [&](const ChunkRange& chunks, comm::Axes sharded, comm::Axes over) {
    return sum_of_parts(chunks, units.groups[size_t(chunks.group)], sharded | over) * (mesh.size(over) - 1);
  };
  for (const Instruction& in : program.instructions) {
    if (const Gather* gather = in.as<Gather>()) {
      const Group& group = units.groups[size_t(gather->chunks.group)];
      const int64_t elements = received(gather->chunks, gather->sharded, gather->over);
      if (group.nf4 || (group.int8 && gather->chunks.region != kNoRegion)) {
        traffic.cell_bytes += bytes_of_cells(elements, group);
      } else {
        traffic.gathered += elements;
      }
    }
    if (const Reduce* reduce = in.as<Reduce>()) {
      for (const Reduce::Summand& summand : reduce->bucket) {
        const int64_t elements = received(summand.chunks, reduce->sharded, reduce->over);
        if (reduce->code) {
          traffic.coded_bytes += int64_t(wire_bytes(*reduce->code, elements));
        } else {
          traffic.reduced += (reduce->scatter ? 1 : 2) * elements;
        }
      }
    }
    if (const Exchange* joint = in.as<Exchange>()) {
      const int64_t ranks = mesh.size(joint->over);
      traffic.exchanged += joint->elements / ranks * (ranks - 1);
    }
    if (const Send* send = in.as<Send>()) traffic.exchanged += send->elements;
    if (const GatherSums* gather = in.as<GatherSums>()) {
      for (const ChunkRange& chunks : gather->bucket) traffic.reduced += received(chunks, {}, gather->over);
    }
  }
  return traffic;
}

}  // namespace zeno::zero
