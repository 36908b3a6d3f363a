#include "zeno/zero/program_builder.h"

#include <algorithm>

#include "zeno/base/math.h"

namespace zeno::zero {
namespace {

constexpr size_t kRegionAlign = 256;

// Last instruction on each lane that touched something; -1: none.
using LastTouch = std::array<int, kLanes>;
constexpr LastTouch kUntouched{-1, -1, -1};

bool lives_meet(const Region& a, const Region& b) { return a.first <= b.last && b.first <= a.last; }
bool bytes_meet(const Region& a, const Region& b) {
  return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

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

std::vector<RegionId> touched_regions(const Instruction& in) {
  std::vector<RegionId> regions;
  const auto touch = [&](RegionId region) {
    if (region != kNoRegion) regions.push_back(region);
  };
  for (RegionId region : {in.x, in.y, in.saved, in.workspace, in.wire, in.source, in.target.region})
    touch(region);
  for (const Binding& binding : in.params) touch(binding.region);
  for (const Binding& binding : in.grads) touch(binding.region);
  for (const ChunkRange& range : in.chunks) touch(range.region);
  return regions;
}

std::vector<std::pair<int, int>> touched_storage(const Instruction& in) {
  constexpr int kParams = 0, kGrads = 1, kSums = 2;
  std::vector<std::pair<int, int>> storage;
  for (const Binding& binding : in.params) {
    if (binding.region == kNoRegion) storage.emplace_back(kParams, binding.group);
  }
  for (const Binding& binding : in.grads) {
    if (binding.region == kNoRegion) storage.emplace_back(kGrads, binding.group);
  }
  for (const ChunkRange& range : in.chunks) {
    const bool gathers = in.op == Op::gather;
    if (!gathers || range.region == kNoRegion) storage.emplace_back(gathers ? kParams : kGrads, range.group);
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
      storage.emplace_back(kGrads, in.target.group);
      storage.emplace_back(kParams, in.target.group);
      storage.emplace_back(kSums, 0);
      break;
    case Op::loss:
    case Op::sum_losses:
    case Op::norm:
      storage.emplace_back(kSums, 0);
      break;
    default:
      break;
  }
  return storage;
}

RegionId ProgramBuilder::region(Purpose purpose, size_t bytes) {
  if (bytes == 0) return kNoRegion;
  program_.regions.push_back({purpose, bytes, -1, -1, 0});
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
  std::vector<std::vector<int>> pools(kPurposes);
  for (int id = 0; id < int(program_.regions.size()); ++id) {
    pools[size_t(program_.regions[id].purpose)].push_back(id);
  }
  for (int p = 0; p < kPurposes; ++p) {
    std::vector<int>& ids = pools[size_t(p)];
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
    program_.pool_bytes[size_t(p)] = std::min(by_size, place(earlier));
    if (by_size == program_.pool_bytes[size_t(p)]) place(larger);
  }
}

// An instruction waits for the latest instruction on every other lane that touched the same storage, the same
// region, or a region that had its bytes before. What the lane has already waited for is not waited for
// again.
void ProgramBuilder::derive_waits() {
  std::vector<LastTouch> regions(program_.regions.size(), kUntouched);
  std::map<std::pair<int, int>, LastTouch> storage;
  std::array<LastTouch, kLanes> waited{kUntouched, kUntouched, kUntouched};
  for (int i = 0; i < int(program_.instructions.size()); ++i) {
    Instruction& in = program_.instructions[i];
    LastTouch need = kUntouched;
    const auto after = [&](const LastTouch& touch) {
      for (int lane = 0; lane < kLanes; ++lane) need[lane] = std::max(need[lane], touch[lane]);
    };
    for (RegionId id : touched_regions(in)) {
      const Region& region = program_.regions[id];
      if (region.first == i) {
        for (size_t other = 0; other < regions.size(); ++other) {
          const Region& before = program_.regions[other];
          if (before.purpose == region.purpose && before.last < i && bytes_meet(before, region))
            after(regions[other]);
        }
      }
      after(regions[id]);
    }
    for (const auto& key : touched_storage(in)) after(storage.try_emplace(key, kUntouched).first->second);
    for (int lane = 0; lane < kLanes; ++lane) {
      if (lane == int(in.lane) || need[lane] <= waited[int(in.lane)][lane]) continue;
      waited[int(in.lane)][lane] = need[lane];
      in.waits.push_back(need[lane]);
      program_.instructions[need[lane]].signals = true;
    }
    for (RegionId id : touched_regions(in)) regions[id][int(in.lane)] = i;
    for (const auto& key : touched_storage(in)) storage[key][int(in.lane)] = i;
  }
}

Program ProgramBuilder::finish() {
  place_regions();
  derive_waits();
  return std::move(program_);
}

}  // namespace zeno::zero
