// Takes peer snapshots while a run trains: every few steps a checkpoint in memory (peer_folder.h), by the
// saver and from the copy of the state that checkpoints on the disk use too. Where hosts are several, every
// rank's file also goes to a partner on another one.
//
// There is one copy of the state, so a snapshot that comes due while any save is still being written is put
// off to the next step at which none is: training waits for no write because of it. Thread rule: the
// trainer's thread; calls marked collective are made by all ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "zeno/train/saving/checkpoint_saver.h"
#include "zeno/train/saving/peer_folder.h"

namespace zeno::train {

class PeerSaver {
 public:
  // Collective, before step `first` + 1. Error(memory) when the snapshots do not fit into the file system or
  // the memory of a host. `folder` and `engine` outlive it.
  PeerSaver(const config::RunConfig& run, PeerFolder& folder, zero::Engine& engine, comm::World& world,
            int64_t first);

  bool on() const { return saver_ != nullptr; }
  // The same on all ranks when `busy` is: some rank still writes a save. A snapshot that is put off is
  // counted.
  bool due(int64_t step, bool busy);
  bool busy() const { return on() && saver_->busy(); }
  // Collective, between steps. `taken`: the engine's copy is of this step already.
  void start(int64_t step, const std::string& run, bool taken);
  // Collective: the snapshot under way is written, or its failure a warning.
  void wait();
  // Collective: the end of a run. The folder goes unless it is the only place that has the last step.
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
  std::unique_ptr<CheckpointSaver> saver_;  // last: its thread uses the others
};

}  // namespace zeno::train
