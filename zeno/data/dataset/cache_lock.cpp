#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/data/dataset/cache.h"

namespace zeno::data {
namespace {

constexpr const char* kLockName = "lock";

// A builder that fails removes the folder with its lock: who waited for that lock holds a file without a
// name.
bool still_there(const File& file) {
  struct stat held, named;
  return ::fstat(file.fd(), &held) == 0 && ::stat(file.path().c_str(), &named) == 0 &&
         held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

// False: somebody else has it, and `wait` is off.
bool lock(const File& file, bool wait) {
  int result;
  do {
    result = ::flock(file.fd(), LOCK_EX | (wait ? 0 : LOCK_NB));
  } while (result != 0 && errno == EINTR);
  if (result == 0) return true;
  const int error = errno;
  require(error == EWOULDBLOCK, ErrorKind::io,
          "[dataset] cannot lock {}: {}; choose a --cache folder on a file system with locks",
          file.path().string(), std::strerror(error));
  return false;
}

// The folder may vanish between its making and the file's: the builder before us failed.
File create_lock_file(const Path& folder) {
  for (int attempt = 0;; ++attempt) {
    make_folders(folder);
    try {
      return File::create(folder / kLockName);
    } catch (const Error&) {
      if (attempt == 100 || folder_exists(folder)) throw;
    }
  }
}

File acquire(const Path& folder) {
  for (bool told = false;;) {
    File file = create_lock_file(folder);
    if (!lock(file, false)) {
      if (!std::exchange(told, true)) {
        log_info("[dataset] another process is building {}: waiting for it", folder.string());
      }
      lock(file, true);
    }
    if (still_there(file)) return file;
  }
}

}  // namespace

CacheLock::CacheLock(const Path& folder) : folder_(folder), file_(acquire(folder)) {}

void CacheLock::clear(bool keep) {
  // The manifest first: without it, whatever is left is no cache.
  remove_file(folder_ / "manifest.json");
  for (const std::string& name : list_folder(folder_)) {
    if (name != kLockName) remove_folder(folder_ / name);
  }
  if (!keep) remove_folder(folder_);
}

bool is_complete_cache(const Path& folder) { return file_exists(folder / "manifest.json"); }

void remove_unfinished_caches(const Path& root) {
  for (const std::string& name : list_folder(root)) {
    const Path folder = root / name;
    if (is_complete_cache(folder) || !file_exists(folder / kLockName)) continue;
    const File file = File::open(folder / kLockName);
    // Looked at again under the lock: its builder may have finished in between.
    if (!lock(file, false) || !still_there(file) || is_complete_cache(folder)) continue;
    log_info("[dataset] removing {}, which a build left unfinished", folder.string());
    remove_folder(folder);
  }
}

}  // namespace zeno::data
