// The folder where this account caches measurements for later runs.
#pragma once

#include "zeno/base/file.h"

namespace zeno {

// ~/.cache/zeno, with the home as the system knows it: the environment is for launchers. It need not exist.
Path cache_folder();

}  // namespace zeno
