// The adapter in a checkpoint of a run that trained adapters only, as a folder of PEFT's.
#pragma once

#include "zeno/base/file.h"

namespace zeno::train {

struct AdapterExport {
  Path checkpoint;
  Path base;  // folder of the model it belongs to; empty: what the run started from
  Path out;
  bool overwrite = false;  // replace an adapter that is already there
};

// Did the run of this checkpoint train adapters only?
bool holds_adapter(const Path& checkpoint);
// Blocking; a piece at a time. Error(usage) for folders that do not fit.
void export_adapter(const AdapterExport& options);

}  // namespace zeno::train
