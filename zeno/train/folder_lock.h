// One run at a time in an output folder: two would mix their checkpoints and metrics.
#pragma once

#include <chrono>

#include "zeno/base/file.h"

namespace zeno::train {

// Holds the folder until it is destroyed or the process ends, however it ends. Leaves no file; a folder that
// was made for it and is still empty goes again. Where the file system knows no locks, it holds nothing.
class FolderLock {
 public:
  // Makes the folder where there is none. Error(usage) when another run has it for longer than that: one that
  // was killed a moment ago, to be started again, may still be on its way out.
  explicit FolderLock(Path folder, std::chrono::milliseconds patience = std::chrono::seconds(3));
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Did another run have it at first?
  bool waited() const { return waited_; }

 private:
  void open();
  bool take(std::chrono::milliseconds patience);
  bool is_current() const;
  void close();

  const Path folder_;
  int fd_ = -1;
  bool made_ = false, waited_ = false;
};

}  // namespace zeno::train
