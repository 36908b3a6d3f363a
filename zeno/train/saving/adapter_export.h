// Exports the adapter from a checkpoint of a run that trained only an adapter, as a PEFT folder.
#pragma once

#include "zeno/base/file.h"

namespace zeno::train {

struct AdapterExport {
  Path checkpoint;
  Path base;  // folder of the base model; empty: the one the run started from
  Path out;
  bool overwrite = false;  // replace an existing adapter
};

// Whether the run of this checkpoint trained only an adapter.
bool holds_adapter(const Path& checkpoint);
// Blocking; holds one piece in memory at a time. Error(usage) for folders that do not match.
void export_adapter(const AdapterExport& options);

}  // namespace zeno::train
