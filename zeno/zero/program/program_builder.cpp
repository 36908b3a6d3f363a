#include "zeno/zero/program/program_builder.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/zero/program/region_packing.h"

namespace zeno::zero {
namespace {

// The last instruction on each lane that touched something; -1: none.
using LastTouch = std::array<int, kLanes>;
constexpr LastTouch untouched() {
  LastTouch touch{};
  touch.fill(-1);
  return touch;
}

// Regions at the same place share a slot. Each slot lists the slots that it has bytes in common with.
struct Slots {
  std::vector<int> of_region;
  std::vector<std::vector<int>> meeting;  // includes the slot itself
};

Slots make_slots(const std::vector<Region>& regions) {
  // Pool by pool, from the lowest offset up.
  std::map<std::tuple<Tier, Purpose, size_t, size_t>, int> index;
  for (const Region& r : regions) index.try_emplace({r.tier, r.purpose, r.offset, r.bytes}, 0);
  Slots slots;
  std::vector<std::pair<Region, int>> open;
  for (auto& [key, slot] : index) {
    const auto& [tier, purpose, offset, bytes] = key;
    const Region mine{.tier = tier, .purpose = purpose, .bytes = bytes, .offset = offset};
    slot = int(slots.meeting.size());
    slots.meeting.push_back({slot});
    std::erase_if(open, [&](const auto& other) {
      return other.first.tier != mine.tier || other.first.purpose != mine.purpose ||
             other.first.offset + other.first.bytes <= mine.offset;
    });
    for (const auto& [other, theirs] : open) {
      if (!share_bytes(other, mine)) continue;
      slots.meeting[size_t(slot)].push_back(theirs);
      slots.meeting[size_t(theirs)].push_back(slot);
    }
    open.emplace_back(mine, slot);
  }
  for (const Region& r : regions) slots.of_region.push_back(index.at({r.tier, r.purpose, r.offset, r.bytes}));
  return slots;
}

}  // namespace

bool share_bytes(const Region& a, const Region& b) {
  return a.tier == b.tier && a.purpose == b.purpose && a.offset < b.offset + b.bytes &&
         b.offset < a.offset + a.bytes;
}

void check_instructions(int64_t count) {
  require(
      count <= kMostInstructions, ErrorKind::usage,
      "[plan] a step of one rank has more than {} instructions; use more ranks, a smaller model, or fewer "
      "micro-batches (--grad-accum)",
      kMostInstructions);
}

RegionId ProgramBuilder::region(Purpose purpose, size_t bytes, Tier tier) {
  if (bytes == 0) return kNoRegion;
  program_.regions.push_back({tier, purpose, bytes, -1, -1, 0});
  return RegionId(program_.regions.size()) - 1;
}

int ProgramBuilder::add(Instruction instruction) {
  check_instructions(int64_t(program_.instructions.size()) + 1);
  const int index = int(program_.instructions.size());
  for (const auto& touch : touches_of(instruction).regions) {
    Region& region = program_.regions[size_t(touch.memory)];
    if (region.first < 0) region.first = index;
    region.last = index;
  }
  program_.instructions.push_back(std::move(instruction));
  return index;
}

void ProgramBuilder::hold(RegionId region) {
  if (region != kNoRegion) program_.regions[region].last = int(program_.instructions.size()) - 1;
}

// An instruction waits for the latest instruction on every other lane that touched the same storage, the same
// region, or a region that had its bytes before; readers wait for each other too. It does not wait again for
// what its lane has already waited for. The list is walked twice, as if it ran twice: waits of the second run
// on the first are those carried from step to step.
void ProgramBuilder::derive_waits() {
  const int count = int(program_.instructions.size());
  const Slots slots = make_slots(program_.regions);
  std::vector<LastTouch> regions(program_.regions.size(), untouched());
  std::vector<LastTouch> places(slots.meeting.size(), untouched());  // of slots: by any region
  std::map<Storage, LastTouch> storage;
  std::array<LastTouch, kLanes> waited;
  waited.fill(untouched());
  for (int n = 0; n < 2 * count; ++n) {
    const bool again = n >= count;
    Instruction& in = program_.instructions[size_t(n % count)];
    LastTouch need = untouched();
    const auto after = [&](const LastTouch& touch) {
      for (int lane = 0; lane < kLanes; ++lane) need[lane] = std::max(need[lane], touch[lane]);
    };
    const Touches touches = touches_of(in);
    for (const auto& [id, access] : touches.regions) {
      after(regions[size_t(id)]);
      if (program_.regions[size_t(id)].first != n % count) continue;
      for (int slot : slots.meeting[size_t(slots.of_region[size_t(id)])]) after(places[size_t(slot)]);
    }
    for (const auto& [kept, access] : touches.storage)
      after(storage.try_emplace(kept, untouched()).first->second);
    LastTouch& known = waited[size_t(in.lane)];
    for (int lane = 0; lane < kLanes; ++lane) {
      if (lane == int(in.lane) || need[lane] <= known[lane]) continue;
      known[lane] = need[lane];
      if (again && need[lane] >= count) continue;  // found by the first walk
      (again ? in.carried : in.waits).push_back(need[lane]);
      program_.instructions[need[lane]].signals = true;
    }
    const size_t lane = size_t(in.lane);
    for (const auto& [id, access] : touches.regions)
      regions[size_t(id)][lane] = places[size_t(slots.of_region[size_t(id)])][lane] = n;
    for (const auto& [kept, access] : touches.storage) storage[kept][lane] = n;
  }
}

Program ProgramBuilder::finish() {
  pack_regions(program_);
  derive_waits();
  return std::move(program_);
}

}  // namespace zeno::zero
