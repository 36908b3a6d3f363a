// One file of state on disk: belongs to a running process, is empty when the process starts and is removed
// when it ends, unless it was moved to a permanent place. A lock distinguishes a file in use from one that a
// killed run left behind, which is reused.
//
// Owner of the descriptor, the lock and the file itself. All calls block. Threads: others may use fd() and
// path() during move_to().
#pragma once

#include <cstdint>
#include <mutex>

#include "zeno/base/file.h"

namespace zeno {

class SwapFile {
 public:
  // Past the page cache where the file system can.
  explicit SwapFile(Path path);
  SwapFile(SwapFile&& other) noexcept;
  SwapFile& operator=(SwapFile&&) = delete;
  ~SwapFile();  // removes the file, unless it was moved

  Path path() const;
  int fd() const { return fd_; }
  // Gives the file its size and its place on the disk.
  void allocate(uint64_t bytes);
  // Identity of the file system: folders may share one.
  uint64_t file_system_id() const;
  // Another name on the same file system, which it keeps; what has that name is replaced. It can still be
  // read here.
  void move_to(const Path& path);

 private:
  mutable std::mutex mutex_;  // of the path
  Path path_;
  bool moved_ = false;
  int fd_;
};

// Would a file be taken by that folder by rename? Found out by doing it with an empty one of this name:
// mounts of one file system, as containers have them, look the same and do not.
bool can_move(const Path& file, const Path& folder);

}  // namespace zeno
