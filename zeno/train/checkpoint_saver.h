// Writes checkpoints while training goes on. start() takes a snapshot, which is all that training can wait
// for; a thread of each rank then writes that rank's file, and rank 0's makes the manifest when the files of
// all ranks are on the disk. At most one save is under way.
//
// A save that fails leaves the checkpoints before it as they are: it is reported once, by the next call, as a
// warning where training can go on. Thread rule: the trainer's thread.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <string>
#include <thread>

#include "zeno/base/file.h"
#include "zeno/checkpoint/checkpoint.h"
#include "zeno/comm/world.h"
#include "zeno/zero/engine.h"

namespace zeno::train {

struct SaverOptions {
  Path folder;  // holds one folder for each checkpoint
  checkpoint::Retention retention;
  std::chrono::milliseconds deadline{300'000};  // for the files of the other ranks
};

class CheckpointSaver {
 public:
  CheckpointSaver(SaverOptions options, zero::Engine& engine, comm::World& world);
  // Gives up a save that still waits for other ranks: they may be gone. finish() is the way to end well.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Collective, between steps: saves the state after `step` steps. `run` is what the trainer needs to go on,
  // a JSON object, the same on all ranks. Waits for the save before. A step that is saved already stays as it
  // is.
  void start(int64_t step, const std::string& run);
  // Waits for the save under way; throws what it failed of.
  void finish();

 private:
  checkpoint::Manifest layout(int64_t step, const std::string& run) const;
  void write(const Path& folder, checkpoint::Manifest manifest);
  void write_own_file(const Path& folder, const checkpoint::Manifest& manifest);
  void write_manifest(const Path& folder, checkpoint::Manifest manifest);

  SaverOptions options_;
  zero::Engine& engine_;
  comm::World& world_;
  int64_t last_ = -1;  // the step saved last
  std::atomic<bool> given_up_{false};
  std::thread thread_;
  std::exception_ptr error_;
};

}  // namespace zeno::train
