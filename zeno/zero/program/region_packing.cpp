#include "zeno/zero/program/region_packing.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <vector>

#include "zeno/base/math.h"

namespace zeno::zero {
namespace {

constexpr size_t kRegionAlign = 256;

struct Stretch {
  size_t begin = 0, end = 0;
};

// The bytes that are taken, as ranges that do not touch each other.
class Taken {
 public:
  bool empty() const { return stretches_.empty(); }
  void add(Stretch more) {
    const auto begin = std::ranges::lower_bound(stretches_, more.begin, {}, &Stretch::end);
    auto end = begin;
    for (; end != stretches_.end() && end->begin <= more.end; ++end) {
      more.begin = std::min(more.begin, end->begin);
      more.end = std::max(more.end, end->end);
    }
    if (begin == end) {
      stretches_.insert(begin, more);
    } else {
      *begin = more;
      stretches_.erase(begin + 1, end);
    }
  }
  // The end of the first range that overlaps these bytes; nothing if they are free.
  std::optional<size_t> meets(size_t offset, size_t bytes) const {
    const auto next = std::ranges::upper_bound(stretches_, offset, {}, &Stretch::end);
    if (next == stretches_.end() || next->begin >= offset + bytes) return std::nullopt;
    return next->end;
  }

 private:
  std::vector<Stretch> stretches_;  // in order
};

// The regions of a pool that have an offset, by lifetime: a binary tree over the instructions at which any
// region of the pool begins or ends to live. Many regions together take up few ranges, so a search need not
// look at each of them.
class Placed {
 public:
  explicit Placed(const std::vector<Region*>& pool) {
    for (const Region* region : pool) moments_.insert(moments_.end(), {region->first, region->last});
    std::ranges::sort(moments_);
    moments_.erase(std::ranges::unique(moments_).begin(), moments_.end());
    leaves_ = std::bit_ceil(moments_.size());
    nodes_.resize(2 * leaves_);
  }

  void add(const Region& region) {
    if (region.bytes == 0) return;
    const Stretch taken{region.offset, round_up(region.offset + region.bytes, kRegionAlign)};
    for_path(region.first, [&](Node& node) { node.ends.add(taken); });
    for_path(region.last, [&](Node& node) { node.ends.add(taken); });
    for_cover(region, [&](Node& node) { node.whole.add(taken); });
  }
  // The lowest offset where `region` overlaps none of those that are alive at the same time.
  size_t lowest_fit(const Region& region) {
    if (region.bytes == 0) return 0;
    std::vector<const Taken*> taken;
    const auto look_at = [&](const Taken& some) {
      if (!some.empty()) taken.push_back(&some);
    };
    // Those that are alive throughout a part of its lifetime, then those that begin or end in it.
    for_path(region.first, [&](const Node& node) { look_at(node.whole); });
    for_path(region.last, [&](const Node& node) { look_at(node.whole); });
    for_cover(region, [&](const Node& node) {
      look_at(node.whole);
      look_at(node.ends);
    });
    size_t offset = 0;
    for (size_t free = 0, i = 0; free < taken.size(); i = (i + 1) % taken.size()) {
      const std::optional<size_t> end = taken[i]->meets(offset, region.bytes);
      offset = end.value_or(offset);
      free = end ? 1 : free + 1;
    }
    return offset;
  }

 private:
  struct Node {
    Taken whole;  // by regions alive at all moments of this node, but not at all of its parent's
    Taken ends;   // by regions that begin or end to live at one of them
  };

  size_t leaf(int instruction) const {
    return leaves_ + size_t(std::ranges::lower_bound(moments_, instruction) - moments_.begin());
  }
  // From a moment to the root.
  template <class Body>
  void for_path(int instruction, const Body& body) {
    for (size_t node = leaf(instruction); node > 0; node /= 2) body(nodes_[node]);
  }
  // The few nodes that cover its lifetime.
  template <class Body>
  void for_cover(const Region& region, const Body& body) {
    for (size_t low = leaf(region.first), high = leaf(region.last) + 1; low < high; low /= 2, high /= 2) {
      if (low % 2 == 1) body(nodes_[low++]);
      if (high % 2 == 1) body(nodes_[--high]);
    }
  }

  std::vector<int> moments_;
  size_t leaves_ = 1;
  std::vector<Node> nodes_;
};

// Places them in the given order; returns the bytes of the pool.
size_t place(const std::vector<Region*>& regions) {
  Placed placed(regions);
  size_t bytes = 0;
  for (Region* region : regions) {
    region->offset = placed.lowest_fit(*region);
    placed.add(*region);
    bytes = std::max(bytes, round_up(region->offset + region->bytes, kRegionAlign));
  }
  return bytes;
}

}  // namespace

// Optimal packing is hard in general. Two greedy orders cover what programs do: largest first, or by begin of
// lifetime. The smaller result is used, for each pool.
void pack_regions(Program& program) {
  std::map<std::pair<Tier, Purpose>, std::vector<Region*>> pools;
  for (Region& region : program.regions) pools[{region.tier, region.purpose}].push_back(&region);
  for (auto& [key, regions] : pools) {
    std::vector<Region*> by_size = regions;
    std::ranges::stable_sort(by_size, std::ranges::greater{}, &Region::bytes);
    std::ranges::stable_sort(regions, std::ranges::less{}, &Region::first);
    const size_t largest_first = place(by_size);
    std::vector<size_t> offsets;
    for (const Region* region : by_size) offsets.push_back(region->offset);
    const size_t as_they_come = place(regions);
    for (size_t i = 0; i < offsets.size() && largest_first <= as_they_come; ++i)
      by_size[i]->offset = offsets[i];
    program.pool_bytes[size_t(key.first)][size_t(key.second)] = std::min(largest_first, as_they_come);
  }
}

}  // namespace zeno::zero
