// A training step as data: a flat list of instructions on lanes, with the memory each one touches.
//
// Stages, offload, prefetch, recompute, accumulation and the order of micro-batches are decided by the
// compiler (compile()) and appear here only as instructions (instruction.h). The executor runs the list, the
// planner walks it, tests check it, and the trace is this list with times. Lanes are in-order queues; `waits`
// and `carried` are the only other ordering: a step may begin before the previous one has ended, wherever
// they share nothing.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "zeno/device/memory.h"
#include "zeno/zero/program/instruction.h"

namespace zeno::zero {

// A range of memory that exists from instruction `first` to instruction `last`. Regions of one purpose share
// a pool; two regions may share bytes if their lifetimes do not overlap.
struct Region {
  Tier tier = Tier::device;
  Purpose purpose = Purpose::workspace;
  size_t bytes = 0;
  int first = 0, last = 0;
  size_t offset = 0;  // in its pool
};

struct Program {
  std::vector<Instruction> instructions;
  std::vector<Region> regions;
  std::array<std::array<size_t, kPurposes>, kTiers.size()> pool_bytes{};  // by tier and purpose
  bool trains = true;  // false: evaluation, which changes no state

  bool uses(Lane lane) const;
};

// Everything the compiler needs to know about the machine and the batch.
struct CompileInput {
  const nn::LayerList& model;
  const UnitTable& units;
  const Policy& policy;  // normalized
  comm::Mesh mesh;
  nn::BatchShape shape;  // of one micro-batch

  // The axes with more than one rank that gradients are summed over.
  comm::Axes data_axes() const { return mesh.needed(comm::kDataAxes); }
  // Those that the gradient norm is summed over.
  comm::Axes norm_axes() const { return mesh.needed(comm::kDataAxes | comm::Axes{comm::Axis::pipe}); }
};

// The program of a step, or of an evaluation if the policy does not train.
Program compile(const CompileInput& input);
// Forward and loss of the same micro-batches in the same order, with the same gathers: no gradients, no
// update.
Program compile_evaluation(const CompileInput& input);

// One line per instruction, for users and tests.
std::string describe(const Program& program, const UnitTable& units);

// Elements a rank must receive from others in one step: with N ranks, (N-1)/N of what each gather assembles
// and each reduction sums (an all-reduce counts twice, as reduce-scatter plus all-gather).
struct ProgramTraffic {
  int64_t gathered = 0, reduced = 0;
  int64_t cell_bytes = 0;   // gathers of 4-bit and 8-bit cells are counted here, in bytes
  int64_t coded_bytes = 0;  // reductions that exchange cells are counted here
  int64_t exchanged = 0;    // at the joints of layers, and sent to other stages
};
ProgramTraffic traffic_of(const Program& program, const UnitTable& units, const comm::Mesh& mesh);

}  // namespace zeno::zero
