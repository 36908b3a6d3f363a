// How files become training samples, as plain values. The trainer's config uses these enums, so a word means
// the same in a flag, in the JSON and here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "zeno/base/file.h"
#include "zeno/data/dataset/columns.h"

namespace zeno::data {

enum class DataFormat { automatic, messages, sharegpt, alpaca, prompt_completion, text, tokens };
// What is trained. automatic: what the format has to learn; completion and assistant are one: what the model
// has to write itself.
enum class LossOn { automatic, completion, assistant, last, all };
// automatic: best_fit, or wrapped where all is plain text or token files.
enum class Packing { automatic, best_fit, none, wrapped };
// What happens to samples longer than a sequence; cutting: keep the beginning or keep the end.
enum class TooLong { truncate, keep_end, split, drop, error };

// Everything that decides the tokens of a dataset. Sequence length and packing do not: one cache serves all.
struct DatasetSpec {
  std::vector<Path> paths;  // files and folders, in order
  Path model;               // folder of the tokenizer and its chat template
  Path cache;               // caches are made in <cache>/datasets
  int64_t vocab_size = 0;   // of the model; an id beyond it is an error
  DataFormat format = DataFormat::automatic;
  LossOn loss_on = LossOn::automatic;
  Columns columns;             // which column to read each field from; the rest goes by its name
  std::string chat_template;   // empty: the folder's; a preset or a file
  std::string template_extra;  // JSON object of further template variables, or empty
  std::string chat_date;       // YYYY-MM-DD for templates that ask for the date; empty: none
  bool skip_bad_lines = false;
  int64_t max_samples = 0;  // 0: all
};

}  // namespace zeno::data
