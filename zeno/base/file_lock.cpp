#include "zeno/base/file_lock.h"

#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "zeno/base/disk_operation.h"
#include "zeno/base/error.h"

namespace zeno {

File create_lock_file(const Path& folder, std::string_view name) {
  for (int attempt = 0;; ++attempt) {
    make_folders(folder);
    try {
      return File::create(folder / name);
    } catch (const Error&) {
      if (attempt == 100 || folder_exists(folder)) throw;
    }
  }
}

LockResult lock_file(const File& file, bool wait) {
  int error = 0;
  do {
    // A wait for another process is none for the disk.
    std::optional<DiskOperation> locking;
    if (!wait) locking.emplace("locking", file.path());
    error = ::flock(file.fd(), LOCK_EX | (wait ? 0 : LOCK_NB)) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error == 0) return LockResult::locked;
  if (error == EWOULDBLOCK) return LockResult::busy;
  if (error == ESTALE) return LockResult::gone;
  const bool unknown = error == EOPNOTSUPP || error == ENOSYS || error == ENOLCK || error == EINVAL;
  require(unknown, ErrorKind::io, "[file] cannot lock {}: {}", file.path().string(), std::strerror(error));
  return LockResult::no_locks;
}

bool is_named(const File& file) {
  const DiskOperation waiting("inspecting", file.path());
  struct stat held, named;
  return ::fstat(file.fd(), &held) == 0 && ::stat(file.path().c_str(), &named) == 0 &&
         held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

}  // namespace zeno
