// Takes peer snapshots while a run trains: every few steps a checkpoint in memory (peer_folder.h). It uses
// the same saver and the same copy of the state as checkpoints on disk. With several hosts, every rank's file
// is also copied to a partner on another host.
//
// There is one copy of the state, so a snapshot that is due while a save is still being written is deferred
// to the first step at which none is. So training never waits for a write because of snapshots. Thread rule:
// the trainer's thread; calls marked collective are made by all ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "zeno/train/saving/checkpoint_saver.h"
#include "zeno/train/saving/peer_folder.h"

namespace zeno::train {

class PeerSaver {
 public:
  // Collective, before step `first` + 1. Error(memory) if the snapshots do not fit into the file system or
  // the memory of a host. `folder` and `engine` must outlive it.
  PeerSaver(const config::RunConfig& run, PeerFolder& folder, zero::Engine& engine, comm::World& world,
            int64_t first);

  bool on() const { return saver_ != nullptr; }
  // Whether to take a snapshot after `step`. `busy`: some rank is still writing a save; it must be the same
  // on all ranks, and so is the result. Counts deferred snapshots.
  bool due(int64_t step, bool busy);
  bool busy() const { return on() && saver_->busy(); }
  // Collective, between steps. `taken`: the engine's copy is already of this step.
  void start(int64_t step, const std::string& run, bool taken);
  // Collective: waits until the snapshot in progress is written; warns if it failed.
  void wait();
  // Collective: ends the run's snapshots. Removes the folder, unless `keep`: it is the only place that has
  // the last step.
  void finish(bool keep);

 private:
  void check_room() const;
  std::vector<checkpoint::StateFile> share(const Path& folder);

  const config::RunConfig& run_;
  PeerFolder& folder_;
  zero::Engine& engine_;
  comm::World& world_;
  int64_t last_;  // the step of the last snapshot
  int64_t taken_ = 0, put_off_ = 0;
  std::unique_ptr<CheckpointSaver> saver_;  // last, because its thread uses the others
};

}  // namespace zeno::train
