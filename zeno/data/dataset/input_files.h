// Which files a dataset consists of and how each is read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "zeno/base/file.h"
#include "zeno/data/dataset/options.h"

namespace zeno::data {

enum class FileKind { json, csv, tsv, parquet, plain_text };

struct InputFile {
  Path path;
  FileKind kind = FileKind::plain_text;
  uint64_t bytes = 0;
};

struct InputFiles {
  std::vector<InputFile> to_build;  // become a cache
  std::vector<Path> token_files;    // are mapped as they are
  std::vector<std::string> notes;   // what was left out and why, for the log
};

// Files in the order given; folders stand for the files below them, sorted, without hidden files and files
// that describe a dataset (README, LICENSE, …). JSON is known by its name (.json, .jsonl, .ndjson) or by a
// format named in the spec, tables by theirs (.csv, .tsv); Parquet and token files by their magic; everything
// else is plain text. A compressed file (.gz, .zst) is what its name without that says.
InputFiles find_input_files(const DatasetSpec& spec);

}  // namespace zeno::data
