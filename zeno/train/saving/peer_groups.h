// Which ranks share a memory folder, and which rank keeps a second copy of which rank's state. Ranks of one
// host form a group; the copy of a rank's file is on a rank of the next group, so no file is lost with a
// host.
//
// Plain values; no thread rule.
#pragma once

#include <cstddef>
#include <vector>

namespace zeno::train {

class PeerGroups {
 public:
  // `folder_of[rank]` is any value that is equal for ranks of one group.
  explicit PeerGroups(const std::vector<int>& folder_of);

  int ranks() const { return int(group_of_.size()); }
  int count() const { return int(members_.size()); }
  int group_of(int rank) const { return group_of_[size_t(rank)]; }
  // Ascending; the first of them prepares and removes folders.
  const std::vector<int>& members(int group) const { return members_[size_t(group)]; }
  int leader_of(int rank) const { return members(group_of(rank)).front(); }

  // The rank that keeps a copy of this one's file; -1 when there is one group only.
  int partner(int rank) const;
  // The ranks whose copies this one keeps, ascending.
  std::vector<int> kept_by(int rank) const;

 private:
  std::vector<int> group_of_;
  std::vector<std::vector<int>> members_;
};

}  // namespace zeno::train
