// Everything that decides what a run computes and that each process reads on its own: the program, the
// config, the files of the model, the adapter, the template and the data. Paths are not part of it, because
// they may differ between hosts; neither are values that belong to a host (caches, logs, memory limits).
#pragma once

#include <string>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/base/file.h"
#include "zeno/checkpoint/deepspeed.h"
#include "zeno/config/config_parser.h"
#include "zeno/train/file_digest.h"

namespace zeno::train {

struct RunInput {
  std::string name;   // the same on all ranks: "zeno.seed", "model file config.json", "file 2 of --data"
  std::string shown;  // its name on this rank: the path of a file
  std::string value;  // the value of a key; the digest of a file, empty until it is read
  ErrorKind kind = ErrorKind::data;  // of the error when ranks differ
  std::string problem;               // why this rank cannot read it; empty: it can
  Path file;                         // empty: not a file
  DigestRule rule;
};

// Lists folders; reads only the beginnings of data files and the index of the weights.
std::vector<RunInput> run_inputs(const config::ParsedConfig& parsed);

// The files that are read of a DeepSpeed checkpoint to resume from. Null: there is none.
std::vector<RunInput> deepspeed_inputs(const checkpoint::DeepSpeedCheckpoint* checkpoint);

}  // namespace zeno::train
