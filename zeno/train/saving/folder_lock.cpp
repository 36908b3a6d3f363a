#include "zeno/train/saving/folder_lock.h"

#include <unistd.h>

#include <memory>
#include <thread>
#include <utility>

#include "zeno/base/disk_operation.h"
#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/base/within.h"

namespace zeno::train {

using namespace std::chrono_literals;

FolderLock::FolderLock(Path folder, std::chrono::milliseconds patience)
    : folder_(std::move(folder)), made_(!folder_exists(folder_)) {
  // Tries again if the previous run has removed the file since it was opened here.
  for (;;) {
    file_.emplace(create_lock_file(folder_, ".zeno-lock"));
    const LockResult result = take(patience);
    if (result == LockResult::locked && is_named(*file_)) return;
    if (result == LockResult::no_locks) break;
    waited_ = true;
  }
  log_warning(
      "[train] --out {}: this file system has no locks, so a second run in this folder cannot be detected",
      folder_.string());
}

LockResult FolderLock::take(std::chrono::milliseconds patience) {
  for (;; patience -= 50ms) {
    const LockResult result = lock_file(*file_, false);
    if (result != LockResult::busy) return result;
    waited_ = true;
    require(patience > 0ms, ErrorKind::usage,
            "[train] --out {}: another run is writing there; wait for it, or choose another folder",
            folder_.string());
    std::this_thread::sleep_for(50ms);
  }
}

// Does not wait long for the disk: the run may have failed because of it.
FolderLock::~FolderLock() {
  const auto file = std::make_shared<std::optional<File>>(std::move(file_));
  const auto release = [file, folder = folder_, made = made_] {
    remove_file((*file)->path());  // while it is still locked by this run
    file->reset();
    if (!made) return;
    const DiskOperation waiting("removing", folder);
    ::rmdir(folder.c_str());  // fails if it is not empty
  };
  try {
    finishes_within(2s, release);
  } catch (const Error& error) {
    log_warning("{}", error.what());
  }
}

}  // namespace zeno::train
