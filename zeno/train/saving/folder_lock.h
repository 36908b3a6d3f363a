// Allows one run at a time in an output folder: two would mix their checkpoints and metrics.
#pragma once

#include <chrono>
#include <optional>

#include "zeno/base/file_lock.h"

namespace zeno::train {

// Locks the folder until it is destroyed or the process ends, for whatever reason. It then removes its file
// `.zeno-lock`, and the folder if it made it and it is still empty, unless the process is killed or the disk
// does not respond. If the file system has no locks, it warns and locks nothing.
class FolderLock {
 public:
  // Makes the folder if there is none. Waits up to `patience` for another run, which may just have been
  // killed and still be ending; then throws Error(usage).
  explicit FolderLock(Path folder, std::chrono::milliseconds patience = std::chrono::seconds(3));
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Whether another run had the lock at first.
  bool waited() const { return waited_; }

 private:
  LockResult take(std::chrono::milliseconds patience);

  const Path folder_;
  const bool made_;
  bool waited_ = false;
  std::optional<File> file_;
};

}  // namespace zeno::train
