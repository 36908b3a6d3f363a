// Writes checkpoints while training continues. start() takes a snapshot; training waits for nothing else.
// Then a thread of each rank writes that rank's file, and rank 0's thread writes the manifest when the files
// of all ranks are on the disk. At most one save is in progress.
//
// A failed save leaves earlier checkpoints unchanged. Ranks learn of it from each other, at the next start()
// or finish(), and not from the disk, which may be full. Thread rule: the trainer's thread.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "zeno/base/file.h"
#include "zeno/checkpoint/checkpoint.h"
#include "zeno/comm/world.h"
#include "zeno/zero/engine.h"

namespace zeno::train {

struct SaverOptions {
  Path folder;  // holds one folder for each checkpoint
  checkpoint::Retention retention;
  std::chrono::milliseconds deadline{300'000};  // the run's: longest wait for another rank
  // The rank that prepares the folder and writes the manifest: one for all ranks that see the same folder.
  int leader = 0;
  // Set if the ranks do not all see the same folder: called on each rank, on its writing thread, after its
  // file is written or has failed. Returns the files of all ranks. Not set: they are found by the notes in
  // the folder.
  std::function<std::vector<checkpoint::StateFile>(const Path& folder)> collect;
};

class CheckpointSaver {
 public:
  CheckpointSaver(SaverOptions options, zero::Engine& engine, comm::World& world);
  // Abandons a save that still waits for other ranks, because they may be gone. Call finish() for a clean
  // end.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Collective, between steps: saves the state after `step` steps. `run` is what the trainer needs to resume,
  // a JSON object, the same on all ranks; the checkpoint of step `best` is not removed. Waits for the
  // previous save, and warns if that failed. Returns false, with a warning, if the folder cannot be made.
  // Does nothing for a step that is saved already. Takes the engine's snapshot, unless it was just `taken`
  // after the same step.
  bool start(int64_t step, const std::string& run, int64_t best = -1, bool taken = false);
  // Whether a save of this rank is still being written. Does not involve other ranks.
  bool busy() const;
  // Collective: waits for the save in progress. Returns its error, or an empty string; the same on all ranks.
  std::string finish();

 private:
  bool leads() const { return world_.rank() == options_.leader; }
  bool prepare(const Path& folder, int64_t step);
  checkpoint::Manifest layout(int64_t step, const std::string& run) const;
  void write_own_files(const Path& folder, const checkpoint::Manifest& manifest);
  void write_manifest(const Path& folder, checkpoint::Manifest manifest);
  std::vector<checkpoint::StateFile> wait_for_note(const Path& folder, int rank);
  void keep(int64_t newest, int64_t best);
  void make_room();

  SaverOptions options_;
  zero::Engine& engine_;
  comm::World& world_;
  int64_t saved_ = -1, under_way_ = -1;  // steps
  std::thread thread_;
  // Errors from writing this rank's file and, on the leading rank, the manifest; empty strings if there are
  // none.
  std::future<std::string> own_file_, manifest_;
  std::atomic<bool> all_written_{false}, given_up_{false};
};

}  // namespace zeno::train
