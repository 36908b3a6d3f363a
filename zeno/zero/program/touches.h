// The memory that an instruction of a step program reads and writes. The lifetimes of regions, the waits
// between instructions and the proofs of the checker are all derived from this.
#pragma once

#include <compare>
#include <vector>

#include "zeno/zero/program/lane.h"

namespace zeno::zero {

// Memory that exists for a part of the step (Program::regions).
using RegionId = int;
inline constexpr RegionId kNoRegion = -1;

// Memory outside regions.
enum class Kept {
  params,   // of a group
  grads,    // of a group
  sums,     // of the step: losses, squares
  states,   // masters and moments of a chunk
  outcome,  // of the step, as one lane reads it
};
struct Storage {
  Kept what = Kept::params;
  int index = 0;  // of the group, the chunk or the lane

  auto operator<=>(const Storage&) const = default;
};

enum class Access { read, write, change };  // change: read and write

struct Touches {
  template <class Memory>
  struct Touch {
    Memory memory;
    Access access;
  };

  explicit Touches(Lane on) : lane(on) {}

  void read(RegionId region) { touch(region, Access::read); }
  void write(RegionId region) { touch(region, Access::write); }
  void change(RegionId region) { touch(region, Access::change); }
  void read(Storage kept) { storage.push_back({kept, Access::read}); }
  void write(Storage kept) { storage.push_back({kept, Access::write}); }
  void change(Storage kept) { storage.push_back({kept, Access::change}); }
  // In `region`, or in `kept` if there is no region.
  void read(RegionId region, Storage kept) { touch(region, kept, Access::read); }
  void write(RegionId region, Storage kept) { touch(region, kept, Access::write); }
  void change(RegionId region, Storage kept) { touch(region, kept, Access::change); }

  Lane lane;  // of the instruction
  std::vector<Touch<RegionId>> regions;
  std::vector<Touch<Storage>> storage;

 private:
  void touch(RegionId region, Access access) {
    if (region != kNoRegion) regions.push_back({region, access});
  }
  void touch(RegionId region, Storage kept, Access access) {
    if (region == kNoRegion) return storage.push_back({kept, access});
    regions.push_back({region, access});
  }
};

}  // namespace zeno::zero
