#include "zeno/device/disk_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "zeno/base/disk_operation.h"
#include "zeno/base/error.h"
#include "zeno/device/ledger.h"

namespace zeno {
namespace {

using namespace std::chrono_literals;

// The kernel may keep the lock of a killed process until the requests that it had in flight are through.
constexpr auto kLockPatience = 500ms, kLockPause = 5ms;

[[noreturn]] void fail_errno(const char* what, const Path& path, int error, const char* hint) {
  fail(ErrorKind::io, "[disk] cannot {} {}: {}; {}", what, path.string(), std::strerror(error), hint);
}

int open_swap(const Path& path) {
  const DiskOperation waiting("opening", path);
  const auto open = [&](int more) {
    int fd;
    do {
      fd = file_system().open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | more, 0666);
    } while (fd < 0 && errno == EINTR);
    return fd;
  };
  int fd = open(O_DIRECT);
  if (fd < 0 && errno == EINVAL) fd = open(0);  // a memory file system
  if (fd < 0) fail_errno("open", path, errno, "the folder must be there and writable");
  return fd;
}

// Locks and empties the file: what a killed run left must not count as taken space. False when the run before
// us removed the file between our opening and locking it.
bool take_swap(int fd, const Path& path) {
  const DiskOperation waiting("locking", path);
  for (auto waited = 0ms; ::flock(fd, LOCK_EX | LOCK_NB) != 0; waited += kLockPause) {
    if (errno != EWOULDBLOCK) fail_errno("lock", path, errno, "use a folder on a local disk");
    require(waited < kLockPatience, ErrorKind::io,
            "[disk] {} is in use by another run; give this run another folder, and name each folder once",
            path.string());
    std::this_thread::sleep_for(kLockPause);
  }
  struct stat ours, there;
  if (::fstat(fd, &ours) != 0 || ::stat(path.c_str(), &there) != 0 || ours.st_ino != there.st_ino ||
      ours.st_dev != there.st_dev) {
    return false;
  }
  if (::ftruncate(fd, 0) != 0) fail_errno("empty", path, errno, "remove it by hand");
  return true;
}

}  // namespace

SwapFile::SwapFile(Path path) : path_(std::move(path)), fd_(-1) {
  while (fd_ < 0) {
    const int fd = open_swap(path_);
    bool taken = false;
    try {
      taken = take_swap(fd, path_);
    } catch (...) {
      ::close(fd);
      throw;
    }
    taken ? void(fd_ = fd) : void(::close(fd));
  }
}

SwapFile::SwapFile(SwapFile&& other) noexcept
    : path_(std::move(other.path_)), moved_(other.moved_), fd_(std::exchange(other.fd_, -1)) {}

SwapFile::~SwapFile() {
  if (fd_ < 0) return;
  const DiskOperation waiting("removing", path_);
  if (!moved_) ::unlink(path_.c_str());  // while the lock is held
  ::close(fd_);
}

Path SwapFile::path() const {
  const std::scoped_lock lock(mutex_);
  return path_;
}

void SwapFile::move_to(const Path& path) {
  {
    const DiskOperation waiting("renaming", path_);
    if (file_system().rename(path_.c_str(), path.c_str()) != 0)
      fail(ErrorKind::io, "[disk] cannot move {} to {}: {}", path_.string(), path.string(),
           std::strerror(errno));
  }
  const std::scoped_lock lock(mutex_);
  path_ = path;
  moved_ = true;
}

// In parts: where the file system cannot reserve space, the C library writes to every page of it, and each
// part must have an answer long before the disk looks dead.
void SwapFile::allocate(uint64_t bytes) {
  constexpr uint64_t kPart = uint64_t(1) << 30;
  int error = 0;
  for (uint64_t begin = 0; begin < bytes && error == 0; begin += kPart) {
    const DiskOperation waiting("reserving space in", path_);
    do {
      error = ::posix_fallocate(fd_, off_t(begin), off_t(std::min(kPart, bytes - begin)));
    } while (error == EINTR);
  }
  if (error == 0) return;
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  fail(ErrorKind::io, "[disk] cannot reserve {} for {}: {}{}", format_bytes(bytes), path_.string(),
       std::strerror(error), full ? "; free some space or name another folder" : "");
}

uint64_t SwapFile::file_system_id() const {
  const DiskOperation waiting("inspecting", path_);
  struct stat info;
  if (::fstat(fd_, &info) != 0) fail_errno("inspect", path_, errno, "check the disk");
  return uint64_t(info.st_dev);
}

bool can_move(const Path& file, const Path& folder) {
  const DiskOperation waiting("renaming", file);
  const Path there = folder / file.filename();
  const int fd = ::open(file.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  ::close(fd);
  const bool moved = ::rename(file.c_str(), there.c_str()) == 0;
  ::unlink(moved ? there.c_str() : file.c_str());
  return moved;
}

}  // namespace zeno
