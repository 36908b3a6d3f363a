// The files of a checkpoint that DeepSpeed wrote, known by their names (docs/deepspeed_checkpoints.md).
// Unsupported checkpoints (model parallelism, pipelines, experts) and missing files are reported here, before
// a file is opened. Pure; no thread rule.
#pragma once

#include <optional>
#include <vector>

#include "zeno/base/file.h"

namespace zeno::checkpoint {

struct DeepSpeedFiles {
  Path folder;                  // the one of the tag
  std::vector<Path> model;      // *_model_states.pt: one, or at stage 3 one for each rank, in order
  std::vector<Path> optimizer;  // *_optim_states.pt in order of ranks; none at stage 0 and in universal ones
  bool sharded_model = false;   // stage 3: parameters are cut into ranks
  bool universal = false;       // a folder for each parameter below zero/
};

// A folder of DeepSpeed's save_checkpoint (the tag `latest` names is taken), the folder of one tag, or a
// universal one. Empty if it is not one.
std::optional<Path> find_deepspeed(const Path& path);

// Error(data) naming what is missing or not supported.
DeepSpeedFiles list_deepspeed(const Path& tag_folder);

}  // namespace zeno::checkpoint
