#include "zeno/zero/program.h"

#include <fmt/format.h>

#include <algorithm>

#include "zeno/kernels/nf4.h"

namespace zeno::zero {

std::string_view name_of(Op op) {
  switch (op) {
    case Op::start:
      return "start";
    case Op::read:
      return "read";
    case Op::fetch:
      return "fetch";
    case Op::store:
      return "store";
    case Op::write:
      return "write";
    case Op::send:
      return "send";
    case Op::gather:
      return "gather";
    case Op::decode:
      return "decode";
    case Op::zero_grads:
      return "zero_grads";
    case Op::forward:
      return "forward";
    case Op::recompute:
      return "recompute";
    case Op::loss:
      return "loss";
    case Op::backward:
      return "backward";
    case Op::add_grads:
      return "add_grads";
    case Op::reduce:
      return "reduce";
    case Op::reduce_rows:
      return "reduce_rows";
    case Op::sum_losses:
      return "sum_losses";
    case Op::scan:
      return "scan";
    case Op::norm:
      return "norm";
    case Op::update:
      return "update";
    case Op::finish:
      return "finish";
  }
  return "?";
}

std::string_view name_of(Lane lane) {
  switch (lane) {
    case Lane::compute:
      return "compute";
    case Lane::gather:
      return "gather";
    case Lane::reduce:
      return "reduce";
    case Lane::read:
      return "read";
    case Lane::fetch:
      return "fetch";
    case Lane::update:
      return "update";
    case Lane::store:
      return "store";
    case Lane::spill:
      return "spill";
    case Lane::refill:
      return "refill";
    case Lane::write:
      return "write";
    case Lane::send:
      return "send";
    case Lane::host:
      return "host";
    case Lane::publish:
      return "publish";
  }
  return "?";
}

std::string_view name_of(Moved moved) {
  switch (moved) {
    case Moved::states:
      return "states";
    case Moved::params:
      return "params";
    case Moved::activation:
      return "activation";
  }
  return "?";
}

bool Program::uses(Lane lane) const {
  return std::ranges::any_of(instructions, [&](const Instruction& in) { return in.lane == lane; });
}

std::string describe(const Instruction& in, const UnitTable& units) {
  std::string text = fmt::format("{} {}", name_of(in.op), units.unit_names[in.layer]);
  if (in.micro_batch >= 0) text += fmt::format(" mb{}", in.micro_batch);
  for (const ChunkRange& range : in.chunks) {
    text += fmt::format(" g{}[{}..{}){}", range.group, range.first, range.first + range.count,
                        range.accumulate ? "+" : "");
  }
  if (in.op == Op::decode || in.op == Op::scan || in.op == Op::update || in.op == Op::zero_grads ||
      in.op == Op::add_grads) {
    text += fmt::format(" g{}", in.target.group);
  }
  const bool moves = in.op == Op::read || in.op == Op::fetch || in.op == Op::store || in.op == Op::write;
  if (moves) text += fmt::format(" {}", name_of(in.moved));
  if (in.chunk >= 0) text += fmt::format(" c{}", in.chunk);
  return text;
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
  for (const Instruction& in : program.instructions) {
    int64_t pieces = 0;
    for (const ChunkRange& range : in.chunks) {
      const Group& group = units.groups[range.group];
      for (int c = range.first; c < range.first + range.count; ++c) {
        const int64_t piece = group.partition.chunks()[c].piece;
        if (group.nf4) {
          traffic.nf4_bytes += int64_t(nf4_bytes(piece)) * (world - 1);
        } else {
          pieces += piece;
        }
      }
    }
    const int64_t received = pieces * (world - 1);
    if (in.op == Op::gather) traffic.gathered += received;
    if (in.op == Op::reduce) traffic.reduced += program.scatter ? received : 2 * received;
  }
  return traffic;
}

}  // namespace zeno::zero
