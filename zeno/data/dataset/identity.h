// The name of a dataset cache: a hash of everything that decides its contents.
#pragma once

#include <string>

#include "zeno/data/dataset/input_files.h"
#include "zeno/data/dataset/options.h"

namespace zeno::data {

struct DatasetIdentity {
  std::string text;  // what was hashed, readable; the manifest keeps it
  Path folder;       // <cache>/datasets/<hash>
};

// Files count by path, size and time of change; the tokenizer, the chat template and the options by content.
DatasetIdentity identify_dataset(const DatasetSpec& spec, const InputFiles& files);

}  // namespace zeno::data
