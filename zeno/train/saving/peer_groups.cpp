#include "zeno/train/saving/peer_groups.h"

#include <algorithm>
#include <map>

namespace zeno::train {

PeerGroups::PeerGroups(const std::vector<int>& folder_of) {
  std::map<int, int> index;
  for (int rank = 0; rank < int(folder_of.size()); ++rank) {
    const auto [found, added] = index.emplace(folder_of[size_t(rank)], int(index.size()));
    if (added) members_.emplace_back();
    group_of_.push_back(found->second);
    members_[size_t(found->second)].push_back(rank);
  }
}

int PeerGroups::partner(int rank) const {
  if (count() == 1) return -1;
  const int group = group_of(rank);
  const std::vector<int>& mine = members(group);
  const std::vector<int>& next = members((group + 1) % count());
  return next[size_t(std::ranges::find(mine, rank) - mine.begin()) % next.size()];
}

std::vector<int> PeerGroups::kept_by(int rank) const {
  std::vector<int> kept;
  for (int other = 0; other < ranks(); ++other) {
    if (partner(other) == rank) kept.push_back(other);
  }
  return kept;
}

}  // namespace zeno::train
