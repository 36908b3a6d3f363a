// One run at a time in an output folder: two would mix their checkpoints and metrics.
#pragma once

#include "zeno/base/file.h"

namespace zeno::train {

// Holds the folder until it is destroyed or the process ends, however it ends. Leaves no file. Where the file
// system knows no locks, it holds nothing.
class FolderLock {
 public:
  // Error(usage) when another run has the folder.
  explicit FolderLock(const Path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_;
};

}  // namespace zeno::train
