#include <algorithm>
#include <compare>
#include <cstring>
#include <functional>
#include <map>

#include "zeno/base/error.h"
#include "zeno/comm/peers.h"
#include "zeno/comm/world.h"

namespace zeno::comm {
namespace {

// "ranks 0-3", "ranks 0, 8, 16 and 24", "ranks 0, 8, … and 120"
std::string describe_group(std::span<const int> ranks) {
  constexpr size_t kMost = 8;
  const bool row = ranks.size() > 2 && ranks.back() - ranks.front() + 1 == int(ranks.size());
  if (row) return fmt::format("ranks {}-{}", ranks.front(), ranks.back());
  if (ranks.size() <= kMost) return list_ranks(ranks);
  return fmt::format("ranks {}, {}, … and {}", ranks[0], ranks[1], ranks.back());
}

void check_group(const World& world, std::span<const int> ranks) {
  const bool ascending = std::ranges::adjacent_find(ranks, std::greater_equal{}) == ranks.end();
  const bool within = !ranks.empty() && ranks.front() >= 0 && ranks.back() < world.size();
  require(ascending && within && std::ranges::binary_search(ranks, world.rank()), ErrorKind::usage,
          "[comm] rank {} of {} got a group of {} ranks, expected ascending ranks of the world with itself "
          "among them",
          world.rank(), world.size(), ranks.size());
}

// Identifies a group in a few bytes, however large it is.
struct GroupKey {
  int32_t size = 0, first = 0;
  uint64_t hash = 0;

  explicit GroupKey(std::span<const int> ranks) : size(int32_t(ranks.size())), first(ranks.front()) {
    for (const int rank : ranks) hash = (hash ^ uint64_t(rank + 1)) * 0x9e3779b97f4a7c15u;
  }
  auto operator<=>(const GroupKey&) const = default;
};

// Checks that each group is named by as many ranks as it has.
void check_groups(std::string_view name, const std::vector<GroupKey>& keys) {
  std::map<GroupKey, int> named;
  for (const GroupKey& key : keys) ++named[key];
  for (size_t r = 0; r < keys.size(); ++r) {
    require(named[keys[r]] == keys[r].size, ErrorKind::peer,
            "[comm] the ranks disagree on the groups of communicator '{}': rank {} names a group of {} ranks "
            "from {} "
            "on, as do {} others",
            name, r, keys[r].size, keys[r].first, named[keys[r]] - 1);
  }
}

}  // namespace

std::vector<std::string> values_of(std::span<const int> ranks, std::vector<std::string> all) {
  std::vector<std::string> values;
  for (const int rank : ranks) values.push_back(std::move(all[size_t(rank)]));
  return values;
}

std::string agree_on_communicator(World& world, std::string_view name, Device device,
                                  std::span<const int> ranks, Reduction reduction) {
  check_group(world, ranks);
  const std::string title = fmt::format("{} ({}{})", name, device.kind == Device::Kind::cpu ? "cpu" : "cuda",
                                        reduction == Reduction::native ? ", native sums" : "");
  GroupKey key(ranks);
  const std::string mine(reinterpret_cast<const char*>(&key), sizeof key);
  std::vector<std::string> titles;
  std::vector<GroupKey> keys;
  for (const std::string& theirs : world.exchange(mine + title, "a new communicator")) {
    std::memcpy(&key, theirs.data(), sizeof key);
    keys.push_back(key);
    titles.push_back(theirs.substr(sizeof key));
  }
  for (size_t r = 1; r < titles.size(); ++r) {
    require(titles[r] == titles[0], ErrorKind::peer,
            "[comm] the ranks disagree on a new communicator: rank 0 has '{}', rank {} has '{}'", titles[0],
            r, titles[r]);
  }
  check_groups(name, keys);
  const bool whole = int(ranks.size()) == world.size();
  return whole ? std::string(name) : fmt::format("{} ({})", name, describe_group(ranks));
}

}  // namespace zeno::comm
