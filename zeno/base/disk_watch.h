// For programs that have no ranks to tell: once a disk has not responded for five minutes, says which file it
// was and ends the process with the exit code of an I/O error.
#pragma once

#include "zeno/base/watch.h"

namespace zeno {

class DiskWatch {
 public:
  DiskWatch();

 private:
  Watch watch_;
};

}  // namespace zeno
