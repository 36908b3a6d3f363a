#include "zeno/zero/program_builder.h"

#include <algorithm>
#include <tuple>

#include "zeno/base/error.h"
#include "zeno/zero/region_packing.h"

namespace zeno::zero {
namespace {

// Last instruction on each lane that touched something; -1: none.
using LastTouch = std::array<int, kLanes>;
constexpr LastTouch untouched() {
  LastTouch touch{};
  touch.fill(-1);
  return touch;
}

// Regions that lie at the same place share a slot; slots that have bytes in common know each other.
struct Slots {
  std::vector<int> of_region;
  std::vector<std::vector<int>> meeting;  // each with itself
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

std::vector<RegionId> touched_regions(const Instruction& in) {
  std::vector<RegionId> regions;
  const auto touch = [&](RegionId region) {
    if (region != kNoRegion) regions.push_back(region);
  };
  for (RegionId region :
       {in.x, in.y, in.saved, in.workspace, in.wire, in.source, in.states, in.made, in.target.region})
    touch(region);
  for (const Binding& binding : in.params) touch(binding.region);
  for (const Binding& binding : in.grads) touch(binding.region);
  for (const ChunkRange& range : in.chunks) touch(range.region);
  return regions;
}

std::vector<std::pair<int, int>> touched_storage(const Instruction& in) {
  constexpr int kParams = 0, kGrads = 1, kSums = 2, kStates = 3, kOutcome = 4;
  std::vector<std::pair<int, int>> storage;
  for (const Binding& binding : in.params) {
    if (binding.region == kNoRegion) storage.emplace_back(kParams, binding.group);
  }
  for (const Binding& binding : in.grads) {
    if (binding.region == kNoRegion) storage.emplace_back(kGrads, binding.group);
  }
  for (const ChunkRange& range : in.chunks) {
    const bool gathers = in.op == Op::gather;
    // A gather into a region still reads this rank's part where it is kept.
    if (!gathers || range.region == kNoRegion || in.source == kNoRegion)
      storage.emplace_back(gathers ? kParams : kGrads, range.group);
  }
  switch (in.op) {
    case Op::decode:
      if (in.source == kNoRegion) storage.emplace_back(kParams, in.target.group);
      break;
    case Op::zero_grads:
    case Op::add_grads:
      if (in.target.region == kNoRegion) storage.emplace_back(kGrads, in.target.group);
      break;
    case Op::reduce_rows:
      storage.emplace_back(kGrads, in.target.group);
      break;
    case Op::scan:
      storage.emplace_back(kGrads, in.target.group);
      storage.emplace_back(kSums, 0);
      break;
    case Op::update:
      if (in.source == kNoRegion) storage.emplace_back(kGrads, in.target.group);
      if (in.made == kNoRegion) storage.emplace_back(kParams, in.target.group);
      if (in.states == kNoRegion) storage.emplace_back(kStates, in.chunk);
      storage.emplace_back(kOutcome, int(in.lane));
      break;
    case Op::read:
    case Op::fetch:
    case Op::store:
    case Op::write: {
      const bool inside = (in.op == Op::fetch || in.op == Op::store) && in.source != kNoRegion &&
                          in.target.region != kNoRegion;
      if (inside) break;
      storage.emplace_back(in.moved == Moved::states ? kStates : kParams,
                           in.moved == Moved::states ? in.chunk : in.target.group);
      break;
    }
    case Op::send:
      storage.emplace_back(kGrads, in.target.group);
      break;
    case Op::finish:  // the CPU reads what it hands over
      storage.emplace_back(kOutcome, int(in.lane));
      storage.emplace_back(kOutcome, int(Lane::host));
      break;
    case Op::norm:
      for (int lane = 0; lane < kLanes; ++lane) storage.emplace_back(kOutcome, lane);
      storage.emplace_back(kSums, 0);
      break;
    case Op::start:
    case Op::loss:
    case Op::sum_losses:
      storage.emplace_back(kSums, 0);
      break;
    default:
      break;
  }
  return storage;
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
  for (RegionId id : touched_regions(instruction)) {
    Region& region = program_.regions[id];
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
// region, or a region that had its bytes before. What the lane has already waited for is not waited for
// again. The list is walked twice, as if it ran twice: what the second run finds left by the first is carried
// from step to step.
void ProgramBuilder::derive_waits() {
  const int count = int(program_.instructions.size());
  const Slots slots = make_slots(program_.regions);
  std::vector<LastTouch> regions(program_.regions.size(), untouched());
  std::vector<LastTouch> places(slots.meeting.size(), untouched());  // of slots: by any region
  std::map<std::pair<int, int>, LastTouch> storage;
  std::array<LastTouch, kLanes> waited;
  waited.fill(untouched());
  for (int n = 0; n < 2 * count; ++n) {
    const bool again = n >= count;
    Instruction& in = program_.instructions[size_t(n % count)];
    LastTouch need = untouched();
    const auto after = [&](const LastTouch& touch) {
      for (int lane = 0; lane < kLanes; ++lane) need[lane] = std::max(need[lane], touch[lane]);
    };
    for (RegionId id : touched_regions(in)) {
      after(regions[id]);
      if (program_.regions[id].first != n % count) continue;
      for (int slot : slots.meeting[size_t(slots.of_region[id])]) after(places[size_t(slot)]);
    }
    for (const auto& key : touched_storage(in)) after(storage.try_emplace(key, untouched()).first->second);
    LastTouch& known = waited[int(in.lane)];
    for (int lane = 0; lane < kLanes; ++lane) {
      if (lane == int(in.lane) || need[lane] <= known[lane]) continue;
      known[lane] = need[lane];
      if (again && need[lane] >= count) continue;  // found by the first walk
      (again ? in.carried : in.waits).push_back(need[lane]);
      program_.instructions[need[lane]].signals = true;
    }
    for (RegionId id : touched_regions(in))
      regions[id][int(in.lane)] = places[size_t(slots.of_region[id])][int(in.lane)] = n;
    for (const auto& key : touched_storage(in)) storage[key][int(in.lane)] = n;
  }
}

Program ProgramBuilder::finish() {
  pack_regions(program_);
  derive_waits();
  return std::move(program_);
}

}  // namespace zeno::zero
