#include "zeno/zero/program.h"

#include <fmt/format.h>

#include <algorithm>

#include "zeno/kernels/nf4.h"

namespace zeno::zero {
namespace {

// What each rank contributes to a collective, in elements of the group or in bytes of its cells.
int64_t sum_of_pieces(const ChunkRange& chunks, const Group& group) {
  int64_t sum = 0;
  for (int c = chunks.first; c < chunks.first + chunks.count; ++c) {
    const int64_t piece = group.partition.chunks()[size_t(c)].piece;
    sum += group.nf4 ? int64_t(nf4_bytes(piece)) : piece;
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

ProgramTraffic traffic_of(const Program& program, const UnitTable& units, int world) {
  ProgramTraffic traffic;
  const auto received = [&](const ChunkRange& chunks) {
    return sum_of_pieces(chunks, units.groups[size_t(chunks.group)]) * (world - 1);
  };
  for (const Instruction& in : program.instructions) {
    if (const Gather* gather = in.as<Gather>()) {
      const bool cells = units.groups[size_t(gather->chunks.group)].nf4;
      (cells ? traffic.nf4_bytes : traffic.gathered) += received(gather->chunks);
    }
    if (const Reduce* reduce = in.as<Reduce>()) {
      for (const Reduce::Summand& summand : reduce->bucket)
        traffic.reduced += (program.scatter ? 1 : 2) * received(summand.chunks);
    }
  }
  return traffic;
}

}  // namespace zeno::zero
