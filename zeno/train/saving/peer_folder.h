// The folder of a run's peer snapshots: ordinary checkpoints in a memory file system of each host
// (docs/faults.md). Such a file system outlives the processes, so the next run can resume from what a killed
// run left there. Each host has the files of its own ranks and copies of another host's.
//
// All calls are collective and block. Thread rule: the trainer's thread; transfer() by one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "zeno/base/file.h"
#include "zeno/comm/world.h"
#include "zeno/config/config.h"
#include "zeno/train/saving/peer_groups.h"
#include "zeno/train/saving/peer_transfer.h"

namespace zeno::train {

class PeerFolder {
 public:
  // Creates the folder if the run takes snapshots, for this user only, and finds out which ranks see the same
  // one. --resume auto resumes from the snapshots of its own output folder; those of others do not count.
  PeerFolder(const config::RunConfig& run, comm::World& world);
  // Removes the folder if it is empty.
  ~PeerFolder();
  PeerFolder(const PeerFolder&) = delete;
  PeerFolder& operator=(const PeerFolder&) = delete;

  // False if the run takes no snapshots and there are none.
  bool exists() const { return groups_.has_value(); }
  const Path& path() const { return path_; }
  const PeerGroups& groups() const { return *groups_; }
  bool leads() const { return groups_->leader_of(world_.rank()) == world_.rank(); }
  // Null when all ranks see the same folder.
  PeerTransfer* transfer() const { return transfer_.get(); }

  // The snapshots that the run can resume from, newest first, as folders of this rank; the same number on all
  // ranks. Fetches files that are only on another host. `replicated`: every rank keeps, and will read, all of
  // the state.
  std::vector<Path> find(bool replicated);
  // Called when the run resumes after `step` (0: from the start): removes other snapshots.
  void begin(int64_t step);
  // Called when the run went well: removes the folder and everything in it.
  void remove();

 private:
  // The files of a snapshot that one host has.
  struct Inventory;
  // A file that one rank sends to another.
  struct Move;

  void make_folder() const;
  void find_groups();
  void refuse_newer() const;
  void drop_foreign();
  void clear(int64_t but_step) const;
  std::string list_own() const;
  std::vector<Inventory> exchange_inventories();
  std::optional<std::vector<Move>> moves_for(int64_t step, const std::vector<Inventory>& all,
                                             bool replicated) const;
  bool fetch(const Path& folder, const std::vector<Move>& moves);
  bool all_say(bool fine);

  const config::RunConfig& run_;
  comm::World& world_;
  Path path_;
  std::string id_;  // of the run, the same in the output folder and on every host
  std::optional<PeerGroups> groups_;
  std::unique_ptr<PeerTransfer> transfer_;
};

// Finished snapshots of this output folder in the memory of this host, newest first. For callers outside the
// job; the run may remove snapshots at any time.
std::vector<Path> list_peer_snapshots(const config::RunConfig& run);

}  // namespace zeno::train
