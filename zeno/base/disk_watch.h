// For programs that have no ranks to tell: once a disk has not responded for this long, says which file it
// was and ends the process with the exit code of an I/O error.
#pragma once

#include <chrono>

#include "zeno/base/watch.h"

namespace zeno {

class DiskWatch {
 public:
  explicit DiskWatch(std::chrono::milliseconds longest = std::chrono::minutes(5));

 private:
  Watch watch_;
};

}  // namespace zeno
