#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/file_lock.h"
#include "zeno/base/log.h"
#include "zeno/data/dataset/cache.h"

namespace zeno::data {
namespace {

constexpr const char* kLockName = "lock";

// False: another process has it, and `wait` is off.
bool lock(const File& file, bool wait) {
  const LockResult result = lock_file(file, wait);
  require(result != LockResult::no_locks, ErrorKind::io,
          "[dataset] cannot lock {}; choose a --cache folder on a file system with locks",
          file.path().string());
  return result == LockResult::locked;
}

File acquire(const Path& folder) {
  for (bool told = false;;) {
    File file = create_lock_file(folder, kLockName);  // a builder that fails removes it
    if (!lock(file, false)) {
      if (!std::exchange(told, true)) {
        log_info("[dataset] another process is building {}: waiting for it", folder.string());
      }
      lock(file, true);
    }
    if (is_named(file)) return file;
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
    if (!lock(file, false) || !is_named(file) || is_complete_cache(folder)) continue;
    log_info("[dataset] removing {}, an unfinished build", folder.string());
    remove_folder(folder);
  }
}

}  // namespace zeno::data
