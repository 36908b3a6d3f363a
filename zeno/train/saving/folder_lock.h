// One run at a time in an output folder: two would mix their checkpoints and metrics.
#pragma once

#include <chrono>
#include <optional>

#include "zeno/base/file_lock.h"

namespace zeno::train {

// Holds the folder until it is destroyed or the process ends, however it ends. Its file `.zeno-lock` goes
// with it, unless the process is killed or the disk does not respond; so does a folder that was made for it
// and is still empty. If the file system has no locks, it holds nothing, and a warning says so.
class FolderLock {
 public:
  // Makes the folder where there is none. Error(usage) when another run has it for longer than that: one that
  // was killed a moment ago, to be restarted, may still be on its way out.
  explicit FolderLock(Path folder, std::chrono::milliseconds patience = std::chrono::seconds(3));
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Did another run have it at first?
  bool waited() const { return waited_; }

 private:
  LockResult take(std::chrono::milliseconds patience);

  const Path folder_;
  const bool made_;
  bool waited_ = false;
  std::optional<File> file_;
};

}  // namespace zeno::train
