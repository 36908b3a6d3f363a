#include "zeno/zero/region_packing.h"

#include <algorithm>
#include <bit>
#include <map>

#include "zeno/base/math.h"

namespace zeno::zero {
namespace {

constexpr size_t kRegionAlign = 256;

// Regions by when they live. A region is noted at the few nodes of a binary tree over instructions that cover
// its life, so those alive at an instruction are found on the way from its leaf to the root.
class Lives {
 public:
  explicit Lives(size_t instructions) : leaves_(std::bit_ceil(instructions + 1)), alive_(2 * leaves_) {}

  void add(const Region& region) {
    begins_.emplace(region.first, &region);
    for (size_t low = leaf(region.first), high = leaf(region.last) + 1; low < high; low /= 2, high /= 2) {
      if (low % 2 == 1) alive_[low++].push_back(&region);
      if (high % 2 == 1) alive_[--high].push_back(&region);
    }
  }
  // Until `body` returns false; returns whether it was called for all.
  template <class Body>
  bool for_meeting(const Region& region, const Body& body) const {
    for (size_t node = leaf(region.first); node > 0; node /= 2) {
      for (const Region* other : alive_[node]) {
        if (!body(*other)) return false;
      }
    }
    const auto end = begins_.upper_bound(region.last);
    for (auto at = begins_.upper_bound(region.first); at != end; ++at) {
      if (!body(*at->second)) return false;
    }
    return true;
  }

 private:
  size_t leaf(int instruction) const { return leaves_ + size_t(instruction + 1); }  // -1: never touched

  size_t leaves_;
  std::vector<std::vector<const Region*>> alive_;
  std::multimap<int, const Region*> begins_;
};

// The regions of a pool that have an offset.
class Placed {
 public:
  explicit Placed(size_t instructions) : lives_(instructions) {}

  void add(const Region& region) {
    lives_.add(region);
    by_offset_.insert(std::ranges::upper_bound(by_offset_, region.offset, {}, &Region::offset), &region);
  }
  // The lowest offset where `region` meets none of those that live at the same time.
  size_t lowest_fit(const Region& region) const {
    size_t offset = 0;
    for (const Region* other : meeting(region)) {
      if (offset + region.bytes <= other->offset) break;
      offset = std::max(offset, round_up(other->offset + other->bytes, kRegionAlign));
    }
    return offset;
  }

 private:
  // Those that live at the same time, by offset. Few are found one by one and sorted; where many meet, as
  // what the layers of a deep model save, a walk over all is quicker.
  std::vector<const Region*> meeting(const Region& region) const {
    const size_t few = 16 + by_offset_.size() / 16;
    std::vector<const Region*> out;
    const bool found = lives_.for_meeting(region, [&](const Region& other) {
      out.push_back(&other);
      return out.size() < few;
    });
    if (found) {
      std::ranges::sort(out, {}, &Region::offset);
      return out;
    }
    out.clear();
    for (const Region* other : by_offset_) {
      if (other->first <= region.last && region.first <= other->last) out.push_back(other);
    }
    return out;
  }

  Lives lives_;
  std::vector<const Region*> by_offset_;
};

// In the order given; returns the bytes of the pool.
size_t place(const std::vector<Region*>& regions, size_t instructions) {
  Placed placed(instructions);
  size_t bytes = 0;
  for (Region* region : regions) {
    region->offset = placed.lowest_fit(*region);
    placed.add(*region);
    bytes = std::max(bytes, round_up(region->offset + region->bytes, kRegionAlign));
  }
  return bytes;
}

}  // namespace

// Packing regions is hard in general; two simple orders, each greedy, cover what programs do: the largest
// first, or as they come to life. The tighter result wins, pool by pool.
void pack_regions(Program& program) {
  std::map<std::pair<Tier, Purpose>, std::vector<Region*>> pools;
  for (Region& region : program.regions) pools[{region.tier, region.purpose}].push_back(&region);
  const size_t instructions = program.instructions.size();
  for (auto& [key, regions] : pools) {
    std::vector<Region*> by_size = regions;
    std::ranges::stable_sort(by_size, std::ranges::greater{}, &Region::bytes);
    std::ranges::stable_sort(regions, std::ranges::less{}, &Region::first);
    const size_t largest_first = place(by_size, instructions);
    std::vector<size_t> offsets;
    for (const Region* region : by_size) offsets.push_back(region->offset);
    const size_t as_they_come = place(regions, instructions);
    for (size_t i = 0; i < offsets.size() && largest_first <= as_they_come; ++i)
      by_size[i]->offset = offsets[i];
    program.pool_bytes[size_t(key.first)][size_t(key.second)] = std::min(largest_first, as_they_come);
  }
}

}  // namespace zeno::zero
