// Which pairs of tokens merge, how early, and into what: an open-addressing hash table, built once.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace zeno::data::tokenizer {

class MergeTable {
 public:
  static constexpr uint32_t kNever = UINT32_MAX;
  struct Merge {
    uint32_t rank = kNever;
    int32_t id = -1;
  };

  explicit MergeTable(size_t merges)
      : shift_(64 - std::bit_width(std::bit_ceil(merges * 2 + 2) - 1)), slots_(size_t(1) << (64 - shift_)) {}

  // A pair listed twice counts from its last place, as in the Hugging Face library.
  void add(int32_t left, int32_t right, Merge merge) {
    slots_[slot(key(left, right))] = {key(left, right), merge};
  }

  Merge find(int32_t left, int32_t right) const { return slots_[slot(key(left, right))].merge; }

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };

  static uint64_t key(int32_t left, int32_t right) {
    return uint64_t(uint32_t(left)) << 32 | uint32_t(right);
  }
  size_t slot(uint64_t wanted) const {
    size_t at = size_t((wanted * 0x9e3779b97f4a7c15ull) >> shift_);
    while (slots_[at].key != wanted && slots_[at].key != kEmpty) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  int shift_;
  std::vector<Slot> slots_;
};

}  // namespace zeno::data::tokenizer
