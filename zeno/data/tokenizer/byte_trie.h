// Texts and their values, found by walking a text byte by byte: the nodes' children are in one hash table.
// Built once, then read from any thread.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace zeno::data::tokenizer {

class ByteTrie {
 public:
  static constexpr int32_t kNone = -1;

  ByteTrie() : values_{kNone} { grow(64); }

  // A text added twice keeps its last value.
  void add(std::string_view text, int32_t value) {
    uint32_t node = 0;
    if (!text.empty()) starts_.set(uint8_t(only_start_ = text[0]));
    for (const char c : text) node = child_or_new(node, uint8_t(c));
    values_[node] = value;
  }

  bool may_start(char c) const { return starts_[uint8_t(c)]; }
  // The first place from `at` on where an added text may start, or the end.
  size_t next_start(std::string_view text, size_t at) const {
    if (starts_.count() == 1) {
      const size_t found = text.find(only_start_, at);
      return found == std::string_view::npos ? text.size() : found;
    }
    if (starts_.none()) return text.size();
    while (at < text.size() && !may_start(text[at])) ++at;
    return at;
  }

  // Calls take(end, value) for every added text that text[at..] starts with, shortest first.
  template <class Take>
  void for_each_prefix(std::string_view text, size_t at, Take&& take) const {
    uint32_t node = 0;
    while (at < text.size()) {
      node = child(node, uint8_t(text[at++]));
      if (node == 0) return;
      if (values_[node] != kNone) take(at, values_[node]);
    }
  }

  struct Match {
    size_t end;
    int32_t value;
  };
  std::optional<Match> longest(std::string_view text, size_t at) const {
    std::optional<Match> found;
    if (at < text.size() && may_start(text[at])) {
      for_each_prefix(text, at, [&](size_t end, int32_t value) { found = Match{end, value}; });
    }
    return found;
  }

 private:
  struct Edge {
    uint64_t key = 0;  // node << 8 | byte, plus one; 0: free
    uint32_t child = 0;
  };

  static uint64_t key(uint32_t node, uint8_t byte) { return (uint64_t(node) << 8 | byte) + 1; }
  size_t slot(uint64_t wanted) const {
    size_t at = size_t((wanted * 0x9e3779b97f4a7c15ull) >> 32) & (edges_.size() - 1);
    while (edges_[at].key != 0 && edges_[at].key != wanted) at = (at + 1) & (edges_.size() - 1);
    return at;
  }
  uint32_t child(uint32_t node, uint8_t byte) const { return edges_[slot(key(node, byte))].child; }

  uint32_t child_or_new(uint32_t node, uint8_t byte) {
    if (values_.size() * 2 > edges_.size()) grow(edges_.size() * 2);
    Edge& edge = edges_[slot(key(node, byte))];
    if (edge.key == 0) {
      edge = {key(node, byte), uint32_t(values_.size())};
      values_.push_back(kNone);
    }
    return edge.child;
  }
  void grow(size_t size) {
    std::vector<Edge> old(size);
    old.swap(edges_);
    for (const Edge& edge : old) {
      if (edge.key != 0) edges_[slot(edge.key)] = edge;
    }
  }

  std::vector<int32_t> values_;  // by node; 0 is the root
  std::vector<Edge> edges_;
  std::bitset<256> starts_;
  char only_start_ = 0;  // when starts_ has one
};

}  // namespace zeno::data::tokenizer
