#include "zeno/data/dataset/best_fit.h"

#include <bit>
#include <limits>
#include <numeric>
#include <utility>

#include "zeno/base/error.h"

namespace zeno::data {
namespace {

constexpr uint32_t kNoRoom = std::numeric_limits<uint32_t>::max();

// A set of small numbers that finds the next member by looking at one word per level.
class NumberSet {
 public:
  explicit NumberSet(uint32_t size) {
    for (size_t words = size;;) {
      words = (words + 63) / 64;
      levels_.emplace_back(words, 0);
      if (words <= 1) break;
    }
  }
  void insert(uint32_t value) {
    for (auto& words : levels_) {
      words[value / 64] |= uint64_t(1) << (value % 64);
      value /= 64;
    }
  }
  void erase(uint32_t value) {
    for (auto& words : levels_) {
      uint64_t& word = words[value / 64];
      word &= ~(uint64_t(1) << (value % 64));
      if (word != 0) return;
      value /= 64;
    }
  }
  // The least member that is not below `value`, or kNoRoom.
  uint32_t at_least(uint32_t value) const {
    for (size_t level = 0; level < levels_.size(); ++level) {
      const size_t index = value / 64;
      if (index >= levels_[level].size()) return kNoRoom;
      const uint64_t word = levels_[level][index] & (~uint64_t(0) << (value % 64));
      if (word != 0) return descend(level, uint32_t(index * 64 + size_t(std::countr_zero(word))));
      value = uint32_t(index + 1);
    }
    return kNoRoom;
  }

 private:
  uint32_t descend(size_t level, uint32_t value) const {
    while (level-- > 0) value = value * 64 + uint32_t(std::countr_zero(levels_[level][value]));
    return value;
  }
  std::vector<std::vector<uint64_t>> levels_;  // [0] the members; above: which words are not zero
};

// Indices by length, longest first; equal lengths keep their order. Also the end of each length's range, by
// capacity - length.
struct ByLength {
  std::vector<uint32_t> order, ends;
};
ByLength longest_first(std::span<const uint32_t> lengths, uint32_t capacity) {
  std::vector<uint32_t> place(capacity, 0);
  for (const uint32_t length : lengths) {
    ensure(length >= 1 && length <= capacity, "[packing] got length {}, expected 1..{}", length, capacity);
    ++place[capacity - length];
  }
  std::exclusive_scan(place.begin(), place.end(), place.begin(), uint32_t(0));
  std::vector<uint32_t> order(lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) order[place[capacity - lengths[i]]++] = uint32_t(i);
  return {std::move(order), std::move(place)};
}

// The bins under construction. Those with the same room are a chained list; the one used last comes first.
class OpenBins {
 public:
  explicit OpenBins(uint32_t capacity)
      : capacity_(capacity), first_(size_t(capacity) + 1, kNoRoom), rooms_(capacity + 1) {}

  // The bin that takes an item of this length.
  uint32_t put(uint32_t length) {
    uint32_t room = rooms_.at_least(length);
    uint32_t bin;
    if (room == kNoRoom) {
      bin = uint32_t(next_.size());
      next_.push_back(kNoRoom);
      room = capacity_;
    } else {
      bin = first_[room];
      first_[room] = next_[bin];
      if (first_[room] == kNoRoom) rooms_.erase(room);
    }
    const uint32_t left = room - length;
    if (left == 0) return bin;
    next_[bin] = std::exchange(first_[left], bin);
    rooms_.insert(left);
    return bin;
  }
  size_t count() const { return next_.size(); }

 private:
  uint32_t capacity_;
  std::vector<uint32_t> first_, next_;  // by room, by bin
  NumberSet rooms_;
};

}  // namespace

Bins best_fit(std::span<const uint32_t> lengths, uint32_t capacity) {
  ensure(lengths.size() < kNoRoom, "[packing] got {} samples, expected fewer than {}", lengths.size(),
         kNoRoom);
  const auto [order, ends] = longest_first(lengths, capacity);
  OpenBins open(capacity);
  std::vector<uint32_t> bin_of(order.size());  // by place in the order, so that memory is walked in order
  size_t at = 0;
  for (uint32_t length = capacity; length >= 1; --length) {
    for (const size_t end = ends[capacity - length]; at < end; ++at) bin_of[at] = open.put(length);
  }

  Bins bins;
  bins.starts.assign(open.count() + 1, 0);
  for (const uint32_t bin : bin_of) ++bins.starts[bin + 1];
  std::inclusive_scan(bins.starts.begin(), bins.starts.end(), bins.starts.begin());
  bins.items.resize(order.size());
  std::vector<uint32_t> place(bins.starts.begin(), bins.starts.end() - 1);
  for (size_t i = 0; i < order.size(); ++i) bins.items[place[bin_of[i]]++] = order[i];
  return bins;
}

}  // namespace zeno::data
