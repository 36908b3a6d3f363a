#include "zeno/train/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "zeno/base/error.h"

namespace zeno::train {

using namespace std::chrono_literals;

FolderLock::FolderLock(const Path& folder) : fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (fd_ < 0) return;
  // A run that was killed a moment ago, to be started again, may still be on its way out.
  for (auto waited = 0ms; ::flock(fd_, LOCK_EX | LOCK_NB) != 0; waited += 50ms) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return;
    if (waited >= 3s) {
      ::close(fd_);
      fail(ErrorKind::usage,
           "[train] --out {}: another run is writing there; wait for it, or choose another folder",
           folder.string());
    }
    std::this_thread::sleep_for(50ms);
  }
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace zeno::train
