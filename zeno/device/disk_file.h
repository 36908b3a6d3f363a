// One file of state on disk: belongs to a running process, is empty when it begins and gone when it ends. A
// lock tells a file in use from one that a killed run left behind, which is used again.
//
// Owner of the descriptor, the lock and the file itself. All calls block.
#pragma once

#include <cstdint>

#include "zeno/base/file.h"

namespace zeno {

class SwapFile {
 public:
  // Past the page cache where the file system can.
  explicit SwapFile(Path path);
  SwapFile(SwapFile&& other) noexcept;
  SwapFile& operator=(SwapFile&&) = delete;
  ~SwapFile();  // removes the file

  const Path& path() const { return path_; }
  int fd() const { return fd_; }
  // Gives the file its size and its place on the disk.
  void allocate(uint64_t bytes);
  // Identity of the file system: folders may share one.
  uint64_t file_system_id() const;

 private:
  Path path_;
  int fd_;
};

}  // namespace zeno
