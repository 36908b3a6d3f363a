// What a model is, from the config.json of a Hugging Face folder. Both generations of the file are read:
// rope_theta and rope_scaling at the top (transformers 4) or rope_parameters (5), torch_dtype or dtype. The
// file is not trusted: missing, ill-typed or absurd values are an Error(data) naming file and key; features
// that Zeno does not support are refused by name. A plain value; any thread may read it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/base/dtype.h"
#include "zeno/base/file.h"
#include "zeno/kernels/rope.h"

namespace zeno::model {

enum class Arch { gpt2, llama, mistral, qwen2, qwen3 };

// "llama", as in config.json and on the command line.
std::string_view name_of(Arch arch);
// Throws Error(usage) with the list of supported names.
Arch parse_arch(std::string_view name);
// "gpt2, llama, mistral, qwen2, qwen3"
std::string supported_archs();

struct ModelConfig {
  enum class Activation { silu, gelu_tanh, gelu_exact };

  Arch arch = Arch::llama;
  int64_t vocab = 0, hidden = 0, layers = 0, intermediate = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t max_positions =
      0;  // context of the model: rows of the position table (GPT-2), or what it was trained for
  Activation activation = Activation::silu;
  double norm_eps = 1e-6;
  bool qkv_bias = false, out_bias = false, mlp_bias = false, qk_norm = false;
  bool tied = false;  // output projection = token embedding
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  std::vector<int64_t> windows;  // sliding window of each layer; 0 = no limit
  DType dtype = DType::f32;      // of the weights in the folder
  double init_std = 0.02;
  std::optional<int64_t> eos;  // token that ends a document

  std::string text;                   // the config.json this came from; empty if it came from none
  std::vector<std::string> warnings;  // what the file asks for and Zeno does not do
};

// `where` names the text in messages.
ModelConfig parse_config(std::string_view text, std::string_view where);
// Reads <folder>/config.json and logs its warnings (once: on rank 0).
ModelConfig load_config(const Path& folder);

// Throws an Error of `kind` if sizes are out of range or do not fit each other.
void check_config(const ModelConfig& config, std::string_view where, ErrorKind kind);

// Text of a config.json for weights stored as `dtype`: the original text where there is one, changed only
// where its dtype differs.
std::string config_text(const ModelConfig& config, DType dtype);

}  // namespace zeno::model
