// GPT-2: LayerNorm, learned positions, GELU, biases everywhere; its files keep matrices as [in, out].
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "zeno/base/error.h"
#include "zeno/model/family.h"
#include "zeno/nn/block.h"
#include "zeno/nn/embedding.h"
#include "zeno/nn/lm_head.h"

namespace zeno::model {
namespace {

using Activation = ModelConfig::Activation;

Activation read_activation(const ConfigKeys& keys) {
  const std::string name = keys.string({"activation_function"}, "gelu_new");
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return Activation::gelu_tanh;
  require(name == "gelu", ErrorKind::data,
          "[model] {}: \"activation_function\" is \"{}\", expected gelu_new, gelu_pytorch_tanh or gelu",
          keys.where(), name);
  return Activation::gelu_exact;
}

void preset_gpt2(ModelConfig& config) {
  config.qkv_bias = config.out_bias = config.mlp_bias = true;
  config.norm_eps = 1e-5;
  config.activation = Activation::gelu_tanh;
  config.tied = true;
}

void read(const ConfigKeys& keys, ModelConfig& config) {
  preset_gpt2(config);
  config.hidden = keys.integer({"n_embd", "hidden_size"}, kMaxHidden);
  config.layers = keys.integer({"n_layer", "num_hidden_layers"}, kMaxLayers);
  config.heads = config.kv_heads = keys.integer({"n_head", "num_attention_heads"}, kMaxHeads);
  config.max_positions = keys.integer({"n_positions", "max_position_embeddings"}, kMaxPositions, 1024);
  config.intermediate = keys.integer({"n_inner"}, kMaxIntermediate, 4 * config.hidden);
  config.norm_eps = keys.number({"layer_norm_epsilon"}, 0, 1, 1e-5);
  config.tied = keys.boolean("tie_word_embeddings", true);
  config.activation = read_activation(keys);
  config.windows.assign(size_t(config.layers), 0);
  require(config.hidden % config.heads == 0, ErrorKind::data,
          "[model] {}: n_embd {} is not a multiple of n_head {}", keys.where(), config.hidden, config.heads);
  config.head_dim = config.hidden / config.heads;
  require(keys.boolean("scale_attn_weights", true), ErrorKind::data,
          "[model] {}: \"scale_attn_weights\": false is not supported", keys.where());
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) {
    require(!keys.boolean(key, false), ErrorKind::data, "[model] {}: \"{}\": true is not supported",
            keys.where(), key);
  }
}

void write(const ModelConfig& config, nlohmann::ordered_json& json) {
  json["n_embd"] = config.hidden;
  json["n_inner"] = config.intermediate;
  json["n_layer"] = config.layers;
  json["n_head"] = config.heads;
  json["n_positions"] = config.max_positions;
  json["n_ctx"] = config.max_positions;
  json["activation_function"] = config.activation == Activation::gelu_exact ? "gelu" : "gelu_new";
  json["layer_norm_epsilon"] = config.norm_eps;
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) json[key] = 0.0;
}

// The parameter table of a block. In a vector, rows count elements.
nn::BlockFiles gpt2_files(const ModelConfig& config, int64_t layer) {
  const std::string at = "transformer.h." + std::to_string(layer) + ".";
  const int64_t C = config.hidden, F = config.intermediate;
  constexpr bool kTransposed = true;
  nn::BlockFiles files;
  files.attn_norm = {{at + "ln_1.weight", 0, C}};
  files.attn_norm_bias = {{at + "ln_1.bias", 0, C}};
  files.qkv = {{at + "attn.c_attn.weight", 0, 3 * C, kTransposed}};
  files.qkv_bias = {{at + "attn.c_attn.bias", 0, 3 * C}};
  files.out = {{at + "attn.c_proj.weight", 0, C, kTransposed}};
  files.out_bias = {{at + "attn.c_proj.bias", 0, C}};
  files.mlp_norm = {{at + "ln_2.weight", 0, C}};
  files.mlp_norm_bias = {{at + "ln_2.bias", 0, C}};
  files.up = {{at + "mlp.c_fc.weight", 0, F, kTransposed}};
  files.up_bias = {{at + "mlp.c_fc.bias", 0, F}};
  files.down = {{at + "mlp.c_proj.weight", 0, C, kTransposed}};
  files.down_bias = {{at + "mlp.c_proj.bias", 0, C}};
  return files;
}

nn::BlockOptions gpt2_options(const ModelConfig& config, int64_t layer) {
  using Mlp = nn::BlockOptions::Mlp;
  return {.hidden = config.hidden,
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .intermediate = config.intermediate,
          .norm = nn::Norm::layer,
          .norm_eps = float(config.norm_eps),
          .mlp = config.activation == Activation::gelu_exact ? Mlp::gelu_exact : Mlp::gelu_tanh,
          .qkv_bias = true,
          .out_bias = true,
          .mlp_bias = true,
          .qk_norm = false,
          .window = 0,
          .rope = nullptr,
          .name = "blocks." + std::to_string(layer),
          .files = gpt2_files(config, layer),
          .init_std = float(config.init_std),
          // As in the paper: the sum over the residual stream keeps its size whatever the depth.
          .out_init_std = float(config.init_std / std::sqrt(2.0 * double(config.layers)))};
}

nn::LayerList build(const ModelConfig& config, const BuildOptions& options) {
  require(options.max_positions <= config.max_positions, ErrorKind::usage,
          "[model] sequence length is {}, but this GPT-2 has positions for {} (n_positions); shorten the "
          "sequences",
          options.max_positions, config.max_positions);
  nn::LayerList model{.hidden = config.hidden, .vocab = config.vocab, .layers = {}, .loss = nullptr};
  const float init_std = float(config.init_std);
  model.layers.push_back(
      nn::make_embedding({.vocab = config.vocab,
                          .hidden = config.hidden,
                          .positions = config.max_positions,
                          .name = "embed",
                          .table = {{"transformer.wte.weight", 0, config.vocab}},
                          .position_table = {{"transformer.wpe.weight", 0, config.max_positions}},
                          .tied = config.tied,
                          .init_std = init_std,
                          .lora = options.lora,
                          .neftune_alpha = options.neftune_alpha}));
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    nn::BlockOptions block = gpt2_options(config, layer);
    block.lora = options.lora;
    model.layers.push_back(nn::make_block(std::move(block)));
  }
  model.loss = nn::make_lm_head({.hidden = config.hidden,
                                 .vocab = config.vocab,
                                 .norm = nn::Norm::layer,
                                 .norm_eps = float(config.norm_eps),
                                 .weight_name = config.tied ? "embed.weight" : "lm_head.weight",
                                 .norm_files = {{"transformer.ln_f.weight", 0, config.hidden}},
                                 .norm_bias_files = {{"transformer.ln_f.bias", 0, config.hidden}},
                                 .weight_files = {{"lm_head.weight", 0, config.vocab}},
                                 .init_std = init_std,
                                 .lora = options.lora});
  return model;
}

}  // namespace

const Family kGpt2 = {Arch::gpt2, "gpt2", "GPT2LMHeadModel", read, write, build, preset_gpt2};

}  // namespace zeno::model
