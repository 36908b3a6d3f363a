#include "zeno/train/folder_lock.h"

#include <unistd.h>

#include <thread>
#include <utility>

#include "zeno/base/disk_operation.h"
#include "zeno/base/error.h"
#include "zeno/base/file_lock.h"
#include "zeno/base/log.h"

namespace zeno::train {

using namespace std::chrono_literals;

FolderLock::FolderLock(Path folder, std::chrono::milliseconds patience)
    : folder_(std::move(folder)), made_(!folder_exists(folder_)) {
  // Again when the run before has removed the file since it was opened here.
  do {
    file_.emplace(create_lock_file(folder_, ".zeno-lock"));
  } while (take(patience) && !is_named(*file_));
}

// False: there are no locks.
bool FolderLock::take(std::chrono::milliseconds patience) {
  for (;; patience -= 50ms) {
    const LockResult result = lock_file(*file_, false);
    if (result != LockResult::busy) return result == LockResult::locked;
    waited_ = true;
    require(patience > 0ms, ErrorKind::usage,
            "[train] --out {}: another run is writing there; wait for it, or choose another folder",
            folder_.string());
    std::this_thread::sleep_for(50ms);
  }
}

FolderLock::~FolderLock() {
  try {
    remove_file(file_->path());  // while it is locked: nobody else's
  } catch (const Error& error) {
    log_warning("{}", error.what());
  }
  file_.reset();
  if (!made_) return;
  const DiskOperation waiting("removing", folder_);
  ::rmdir(folder_.c_str());  // fails when anything is in it
}

}  // namespace zeno::train
