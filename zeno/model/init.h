// First values of parameters, and new model folders with random weights (`zeno init`). Every value is a
// function of (seed, name of the parameter, index): any rank computes any part, and the same model comes out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "zeno/base/dtype.h"
#include "zeno/base/file.h"
#include "zeno/model/config.h"
#include "zeno/nn/layer.h"

namespace zeno::model {

// Initial values of elements [begin, end) of a parameter.
void initial_values(const nn::Parameter& parameter, uint64_t seed, int64_t begin, int64_t end, float* out);

struct InitOptions {
  Arch arch = Arch::llama;
  int64_t hidden = 256, layers = 4, heads = 4;
  int64_t kv_heads = 0;      // 0: as many as heads
  int64_t head_dim = 0;      // 0: hidden / heads
  int64_t intermediate = 0;  // 0: 4·hidden for GPT-2, else 8/3·hidden rounded up to 64
  int64_t vocab = 512;
  int64_t max_positions = 1024;
  std::optional<bool> tied;  // default: as the architecture is known (GPT-2 tied, others not)
  DType dtype = DType::f32;
  uint64_t seed = 0;
  bool overwrite = false;  // replace a model that is already in the folder
};

// Throws Error(usage) for sizes that do not fit each other.
ModelConfig make_config(const InitOptions& options);

// Texts of a new folder, as data/ makes them.
struct InitTexts {
  std::string tokenizer_json;  // byte-level; empty: none
  std::string chat_template;   // ChatML; left out when the vocabulary has no room for its marks
};

// Writes config.json, model.safetensors, the texts, tokenizer_config.json and generation_config.json: a
// folder that transformers opens too.
void init_folder(const InitOptions& options, const InitTexts& texts, const Path& folder);

}  // namespace zeno::model
