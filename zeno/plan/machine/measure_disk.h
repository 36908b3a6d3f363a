// The rates of a folder's disk for states that are kept there, measured with the store of a run.
#pragma once

#include "zeno/base/file.h"

namespace zeno::plan {

struct DiskRates {
  double read = 0, write = 0;  // bytes per second
  std::string engine;          // how transfers are made
};

// Throws Error(io) when the folder has no room for a file of `bytes`.
void require_room(const Path& folder, size_t bytes);

// Writes a file of `bytes` (fewer on a slow disk, within a few seconds), writes it again over its existing
// blocks, reads it, and removes it. Blocks.
DiskRates measure_disk(const Path& folder, size_t bytes);

}  // namespace zeno::plan
