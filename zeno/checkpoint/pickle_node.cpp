#include "zeno/checkpoint/pickle_node.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace zeno::checkpoint {
namespace {

// Integers come before texts.
struct Key {
  bool is_text;
  int64_t integer;
  std::string_view text;
  auto operator<=>(const Key&) const = default;
};

// No name of a parameter is longer; comparing the same long text again and again would be too slow.
constexpr size_t kMostKeyBytes = 512;

bool has_key(const PickleNode& key) {
  return key.integer() != nullptr || (key.text() != nullptr && key.text()->size() <= kMostKeyBytes);
}

Key key_of(const PickleNode& key) {
  return key.integer() != nullptr ? Key{false, *key.integer(), {}} : Key{true, 0, *key.text()};
}

// The last one of equal keys wins, as in Python.
const PickleNode* look_up(const PickleDict& dict, const Key& key) {
  const auto key_at = [&](uint32_t i) { return key_of(*dict.items[i].first); };
  const auto behind = std::ranges::upper_bound(dict.by_key, key, {}, key_at);
  if (behind == dict.by_key.begin() || key_at(*(behind - 1)) != key) return nullptr;
  return dict.items[*(behind - 1)].second;
}

}  // namespace

void PickleDict::index() {
  by_key.clear();
  for (uint32_t i = 0; i < items.size(); ++i) {
    if (has_key(*items[i].first)) by_key.push_back(i);
  }
  std::ranges::sort(by_key, {}, [&](uint32_t i) { return std::pair(key_of(*items[i].first), i); });
}

const PickleNode* PickleNode::find(std::string_view key) const {
  const PickleDict* fields = dict();
  if (object() != nullptr && object()->state != nullptr) fields = object()->state->dict();
  return fields != nullptr ? look_up(*fields, {true, 0, key}) : nullptr;
}

const PickleNode* PickleNode::at(int64_t index) const {
  if (const PickleList* items = list()) {
    return index >= 0 && size_t(index) < items->items.size() ? items->items[size_t(index)] : nullptr;
  }
  const PickleDict* fields = dict();
  return fields != nullptr ? look_up(*fields, {false, index, {}}) : nullptr;
}

}  // namespace zeno::checkpoint
