// The tokenizers of tests/golden/tokenizers.
#pragma once

#include <fmt/format.h>

#include <string>

#include "zeno/base/file.h"
#include "zeno/data/tokenizer.h"

namespace zeno::data {

inline constexpr const char* kGoldenLayouts[] = {
    "gpt2",    "gpt2_prefix",   "llama3",  "qwen2",         "deepseek", "falcon", "llama2",
    "mistral", "mistral_split", "unigram", "unigram_bytes", "bert",     "words",  "suffix"};
inline constexpr const char* kByteLevelLayouts[] = {"gpt2", "llama3", "deepseek", "falcon"};

inline Path golden_path(const std::string& name, const char* ending) {
  return Path(ZENO_SOURCE_DIR) / "tests/golden/tokenizers" / (name + ending);
}

inline Tokenizer golden_tokenizer(const std::string& name) {
  const Path path = golden_path(name, ".json");
  return Tokenizer::parse(read_file(path), path.string());
}

}  // namespace zeno::data
