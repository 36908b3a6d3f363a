#include "zeno/train/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <thread>
#include <utility>

#include "zeno/base/disk_operation.h"
#include "zeno/base/error.h"

namespace zeno::train {

using namespace std::chrono_literals;

FolderLock::FolderLock(Path folder, std::chrono::milliseconds patience) : folder_(std::move(folder)) {
  // Again when the run before has removed the folder, empty as it was, since it was opened here.
  do {
    open();
  } while (take(patience) && !is_current());
}

void FolderLock::open() {
  const DiskOperation waiting("opening", folder_);
  close();
  made_ |= !folder_exists(folder_);
  make_folders(folder_);
  fd_ = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

// False: it cannot be locked.
bool FolderLock::take(std::chrono::milliseconds patience) {
  for (; ::flock(fd_, LOCK_EX | LOCK_NB) != 0; patience -= 50ms) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return false;
    waited_ = true;
    if (patience <= 0ms) {
      close();
      fail(ErrorKind::usage,
           "[train] --out {}: another run is writing there; wait for it, or choose another folder",
           folder_.string());
    }
    std::this_thread::sleep_for(50ms);
  }
  return true;
}

// Does the name still stand for what is locked?
bool FolderLock::is_current() const {
  struct stat held, named;
  return ::fstat(fd_, &held) == 0 && ::stat(folder_.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
         held.st_dev == named.st_dev;
}

void FolderLock::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

FolderLock::~FolderLock() {
  if (made_) ::rmdir(folder_.c_str());  // fails when anything is in it
  close();
}

}  // namespace zeno::train
