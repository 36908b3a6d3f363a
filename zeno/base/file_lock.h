// Files that processes lock against each other, also of different hosts: a network file system locks regular
// files that are open for writing, and knows no locks of folders. The holder may remove the file, so check
// after locking that the path still refers to it.
#pragma once

#include <string_view>

#include "zeno/base/file.h"

namespace zeno {

// Creates the file and its folder, which others may be removing.
File create_lock_file(const Path& folder, std::string_view name);

enum class LockResult { locked, busy, gone, no_locks };
// Held until the file is closed, however the process ends. busy: another process has it, and `wait` is off.
// gone: its holder has removed it on another host. no_locks: the file system has none.
LockResult lock_file(const File& file, bool wait);

// Is the file still there under its name?
bool is_named(const File& file);

}  // namespace zeno
