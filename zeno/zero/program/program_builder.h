// Collects instructions and regions, then derives the rest: how long each region lives (from its first to its
// last use), where it is in its pool, and which instructions must wait for which.
#pragma once

#include <cstddef>
#include <cstdint>

#include "zeno/zero/program/program.h"

namespace zeno::zero {

// Far above what real models need. Planning a longer program would take minutes and gigabytes.
inline constexpr int64_t kMostInstructions = int64_t(1) << 20;
// Error(usage) if a step has more instructions.
void check_instructions(int64_t count);

class ProgramBuilder {
 public:
  RegionId region(Purpose purpose, size_t bytes, Tier tier = Tier::device);
  // Returns the index of the instruction.
  int add(Instruction instruction);
  // Keeps the region alive until the last instruction added, so that lanes may overlap.
  void hold(RegionId region);
  Program finish();

 private:
  void derive_waits();

  Program program_;
};

// Whether two regions may use the same bytes at different times.
bool share_bytes(const Region& a, const Region& b);

}  // namespace zeno::zero
