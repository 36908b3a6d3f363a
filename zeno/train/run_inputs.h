// Everything that decides what a run computes and that each process sees for itself: the program, the config,
// the files of the model, the adapter, the template and the data. Other files may lie elsewhere on every
// host: paths are no part of it, and neither is what belongs to a host (caches, logs, memory limits).
#pragma once

#include <string>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/base/file.h"
#include "zeno/train/config_parser.h"
#include "zeno/train/file_digest.h"

namespace zeno::train {

struct RunInput {
  std::string name;   // the same on all ranks: "zeno.seed", "model file config.json", "file 2 of --data"
  std::string shown;  // how this rank calls it: the path of a file
  std::string value;  // of a key; of a file: empty until it is read
  ErrorKind kind = ErrorKind::data;  // of the error when ranks differ
  Path file;                         // empty: a value
  DigestRule rule;
};

// Looks at folders; reads no file but the beginnings of data files.
std::vector<RunInput> run_inputs(const ParsedConfig& parsed);

}  // namespace zeno::train
