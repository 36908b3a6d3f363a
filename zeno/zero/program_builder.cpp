#include "zeno/zero/program_builder.h"

#include <algorithm>

#include "zeno/base/math.h"

namespace zeno::zero {
namespace {

constexpr size_t kRegionAlign = 256;

// Last instruction on each lane that touched something; -1: none.
using LastTouch = std::array<int, kLanes>;
constexpr LastTouch untouched() {
  LastTouch touch{};
  touch.fill(-1);
  return touch;
}

bool lives_meet(const Region& a, const Region& b) { return a.first <= b.last && b.first <= a.last; }

// The lowest offset where `region` meets none of the placed regions that live at the same time.
size_t lowest_fit(const Region& region, const std::vector<const Region*>& placed) {
  std::vector<std::pair<size_t, size_t>> taken;
  for (const Region* other : placed) {
    if (lives_meet(region, *other)) taken.emplace_back(other->offset, other->offset + other->bytes);
  }
  std::sort(taken.begin(), taken.end());
  size_t offset = 0;
  for (const auto& [begin, end] : taken) {
    if (offset + region.bytes <= begin) break;
    offset = std::max(offset, round_up(end, kRegionAlign));
  }
  return offset;
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

RegionId ProgramBuilder::region(Purpose purpose, size_t bytes, Tier tier) {
  if (bytes == 0) return kNoRegion;
  program_.regions.push_back({tier, purpose, bytes, -1, -1, 0});
  return RegionId(program_.regions.size()) - 1;
}

int ProgramBuilder::add(Instruction instruction) {
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

// Packing regions is hard in general; two simple orders, each greedy, cover what programs do: the largest
// first, or as they come to life. The tighter result wins, pool by pool. Deterministic, so all ranks agree.
void ProgramBuilder::place_regions() {
  std::map<std::pair<Tier, Purpose>, std::vector<int>> pools;
  for (int id = 0; id < int(program_.regions.size()); ++id) {
    pools[{program_.regions[id].tier, program_.regions[id].purpose}].push_back(id);
  }
  for (auto& [key, ids] : pools) {
    const auto place = [&](auto&& before) {
      std::stable_sort(ids.begin(), ids.end(),
                       [&](int a, int b) { return before(program_.regions[a], program_.regions[b]); });
      std::vector<const Region*> placed;
      size_t bytes = 0;
      for (int id : ids) {
        Region& region = program_.regions[id];
        region.offset = lowest_fit(region, placed);
        placed.push_back(&region);
        bytes = std::max(bytes, round_up(region.offset + region.bytes, kRegionAlign));
      }
      return bytes;
    };
    const auto larger = [](const Region& a, const Region& b) { return a.bytes > b.bytes; };
    const auto earlier = [](const Region& a, const Region& b) { return a.first < b.first; };
    const size_t by_size = place(larger);
    size_t& bytes = program_.pool_bytes[size_t(key.first)][size_t(key.second)];
    bytes = std::min(by_size, place(earlier));
    if (by_size == bytes) place(larger);
  }
}

// An instruction waits for the latest instruction on every other lane that touched the same storage, the same
// region, or a region that had its bytes before. What the lane has already waited for is not waited for
// again. The list is walked twice, as if it ran twice: what the second run finds left by the first is carried
// from step to step.
void ProgramBuilder::derive_waits() {
  const int count = int(program_.instructions.size());
  std::vector<LastTouch> regions(program_.regions.size(), untouched());
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
      const Region& region = program_.regions[id];
      if (region.first != n % count) continue;
      for (size_t other = 0; other < regions.size(); ++other) {
        if (share_bytes(program_.regions[other], region)) after(regions[other]);
      }
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
    for (RegionId id : touched_regions(in)) regions[id][int(in.lane)] = n;
    for (const auto& key : touched_storage(in)) storage[key][int(in.lane)] = n;
  }
}

Program ProgramBuilder::finish() {
  place_regions();
  derive_waits();
  return std::move(program_);
}

}  // namespace zeno::zero
