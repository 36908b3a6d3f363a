#include "zeno/model/rope_decoder.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/model/family.h"
#include "zeno/nn/block.h"
#include "zeno/nn/embedding.h"
#include "zeno/nn/lm_head.h"
#include "zeno/nn/rope_table.h"

namespace zeno::model {
namespace {

constexpr double kHuge = 1e12;

void read_llama3_scaling(const ConfigKeys& keys, const ConfigKeys& rope, ModelConfig& config) {
  RopeScaling& scaling = config.rope_scaling;
  scaling.kind = RopeScaling::Kind::llama3;
  scaling.factor = rope.number({"factor"}, 1, kHuge);
  scaling.low_freq_factor = rope.number({"low_freq_factor"}, 1e-6, kHuge);
  scaling.high_freq_factor = rope.number({"high_freq_factor"}, 1e-6, kHuge);
  const double original =
      rope.number({"original_max_position_embeddings"}, 1, kHuge, double(config.max_positions));
  scaling.original_context = keys.number({"original_max_position_embeddings"}, 1, kHuge, original);
  require(scaling.high_freq_factor > scaling.low_freq_factor, ErrorKind::data,
          "[model] {}: high_freq_factor is {}, expected more than low_freq_factor {}", rope.where(),
          scaling.high_freq_factor, scaling.low_freq_factor);
}

// transformers 4 has rope_theta and rope_scaling, transformers 5 has both in rope_parameters.
void read_rope(const ConfigKeys& keys, ModelConfig& config) {
  config.rope_theta = keys.number({"rope_theta"}, 1e-6, kHuge, 10000.0);
  const auto whole_head = [&](const ConfigKeys& where) {
    require(where.number({"partial_rotary_factor"}, 0, kHuge, 1.0) == 1, ErrorKind::data,
            "[model] {}: \"partial_rotary_factor\" other than 1 is not supported", where.where());
  };
  whole_head(keys);
  const auto rope = keys.object({"rope_scaling", "rope_parameters"});
  if (!rope) return;
  whole_head(*rope);
  for (const char* layer_type : {"full_attention", "sliding_attention"}) {
    require(!rope->has(layer_type), ErrorKind::data,
            "[model] {}: has a rotary embedding per layer type, which is not supported", rope->where());
  }
  config.rope_theta = rope->number({"rope_theta"}, 1e-6, kHuge, config.rope_theta);
  const std::string type = rope->string({"rope_type", "type"}, "default");
  if (type == "linear") {
    config.rope_scaling.kind = RopeScaling::Kind::linear;
    config.rope_scaling.factor = rope->number({"factor"}, 1, kHuge);
  } else if (type == "llama3") {
    read_llama3_scaling(keys, *rope, config);
  } else {
    require(type == "default", ErrorKind::data,
            "[model] {}: rope type \"{}\" is not supported, expected default, linear or llama3",
            rope->where(), type);
  }
}

// The parameter table of a block. Fused tensors of ours are stacked from the file's in this order: q, k, v;
// gate, up. In a vector, rows count elements.
nn::BlockFiles rope_files(const ModelConfig& config, int64_t layer) {
  const std::string at = "model.layers." + std::to_string(layer) + ".";
  const int64_t q = config.heads * config.head_dim, kv = config.kv_heads * config.head_dim;
  const int64_t C = config.hidden, F = config.intermediate, D = config.head_dim;
  const auto qkv = [&](const std::string& kind) {
    return std::vector<nn::FileSlice>{{at + "self_attn.q_proj." + kind, 0, q},
                                      {at + "self_attn.k_proj." + kind, q, kv},
                                      {at + "self_attn.v_proj." + kind, q + kv, kv}};
  };
  const auto gate_up = [&](const std::string& kind) {
    return std::vector<nn::FileSlice>{{at + "mlp.gate_proj." + kind, 0, F},
                                      {at + "mlp.up_proj." + kind, F, F}};
  };
  nn::BlockFiles files;
  files.attn_norm = {{at + "input_layernorm.weight", 0, C}};
  files.qkv = qkv("weight");
  files.qkv_bias = qkv("bias");
  files.q_norm = {{at + "self_attn.q_norm.weight", 0, D}};
  files.k_norm = {{at + "self_attn.k_norm.weight", 0, D}};
  files.out = {{at + "self_attn.o_proj.weight", 0, C}};
  files.out_bias = {{at + "self_attn.o_proj.bias", 0, C}};
  files.mlp_norm = {{at + "post_attention_layernorm.weight", 0, C}};
  files.up = gate_up("weight");
  files.up_bias = gate_up("bias");
  files.down = {{at + "mlp.down_proj.weight", 0, C}};
  files.down_bias = {{at + "mlp.down_proj.bias", 0, C}};
  return files;
}

nn::BlockOptions rope_options(const ModelConfig& config, int64_t layer) {
  return {.hidden = config.hidden,
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .intermediate = config.intermediate,
          .norm = nn::Norm::rms,
          .norm_eps = float(config.norm_eps),
          .mlp = nn::BlockOptions::Mlp::swiglu,
          .qkv_bias = config.qkv_bias,
          .out_bias = config.out_bias,
          .mlp_bias = config.mlp_bias,
          .qk_norm = config.qk_norm,
          .window = config.windows[size_t(layer)],
          .rope = nullptr,
          .name = "blocks." + std::to_string(layer),
          .files = rope_files(config, layer),
          .init_std = float(config.init_std),
          .out_init_std = float(config.init_std)};
}

}  // namespace

void read_rope_decoder(const ConfigKeys& keys, const RopeDecoderDefaults& defaults, ModelConfig& config) {
  config.hidden = keys.integer({"hidden_size"}, kMaxHidden);
  config.layers = keys.integer({"num_hidden_layers"}, kMaxLayers);
  config.heads = keys.integer({"num_attention_heads"}, kMaxHeads);
  config.intermediate = keys.integer({"intermediate_size"}, kMaxIntermediate);
  config.max_positions = keys.integer({"max_position_embeddings"}, kMaxPositions, defaults.max_positions);
  config.norm_eps = keys.number({"rms_norm_eps"}, 0, 1, 1e-6);
  const bool all_heads = defaults.kv_heads == 0 || keys.is_null("num_key_value_heads");
  config.kv_heads =
      keys.integer({"num_key_value_heads"}, kMaxHeads, all_heads ? config.heads : defaults.kv_heads);
  if (keys.has("head_dim") || defaults.head_dim > 0) {
    config.head_dim = keys.integer({"head_dim"}, kMaxHeadDim, defaults.head_dim);
  } else {
    require(
        config.hidden % config.heads == 0, ErrorKind::data,
        "[model] {}: hidden_size {} is not a multiple of num_attention_heads {}, and there is no head_dim",
        keys.where(), config.hidden, config.heads);
    config.head_dim = config.hidden / config.heads;
  }
  const std::string activation = keys.string({"hidden_act"}, "silu");
  require(activation == "silu" || activation == "swish", ErrorKind::data,
          "[model] {}: \"hidden_act\" is \"{}\", expected silu", keys.where(), activation);
  config.activation = ModelConfig::Activation::silu;
  config.tied = keys.boolean("tie_word_embeddings", false);
  config.windows.assign(size_t(config.layers), 0);
  read_rope(keys, config);
}

void write_rope_decoder(const ModelConfig& config, nlohmann::ordered_json& json) {
  json["hidden_size"] = config.hidden;
  json["intermediate_size"] = config.intermediate;
  json["num_hidden_layers"] = config.layers;
  json["num_attention_heads"] = config.heads;
  json["num_key_value_heads"] = config.kv_heads;
  json["head_dim"] = config.head_dim;
  json["hidden_act"] = "silu";
  json["max_position_embeddings"] = config.max_positions;
  json["rms_norm_eps"] = config.norm_eps;
  json["rope_theta"] = config.rope_theta;
  const RopeScaling& scaling = config.rope_scaling;
  if (scaling.kind == RopeScaling::Kind::linear) {
    json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", scaling.factor}};
  } else if (scaling.kind == RopeScaling::Kind::llama3) {
    json["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", scaling.factor},
                            {"low_freq_factor", scaling.low_freq_factor},
                            {"high_freq_factor", scaling.high_freq_factor},
                            {"original_max_position_embeddings", int64_t(scaling.original_context)}};
  }
}

nn::LayerList build_rope_decoder(const ModelConfig& config, const BuildOptions& options) {
  nn::LayerList model{.hidden = config.hidden, .vocab = config.vocab, .layers = {}, .loss = nullptr};
  const float init_std = float(config.init_std);
  model.layers.push_back(nn::make_embedding({.vocab = config.vocab,
                                             .hidden = config.hidden,
                                             .positions = 0,
                                             .name = "embed",
                                             .table = {{"model.embed_tokens.weight", 0, config.vocab}},
                                             .position_table = {},
                                             .tied = config.tied,
                                             .init_std = init_std,
                                             .lora = options.lora,
                                             .neftune_alpha = options.neftune_alpha}));
  const auto rope = std::make_shared<const nn::RopeTable>(options.max_positions, config.head_dim,
                                                          config.rope_theta, config.rope_scaling);
  model.table_bytes = rope->host_view().bytes();
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    nn::BlockOptions block = rope_options(config, layer);
    block.rope = rope;
    block.lora = options.lora;
    model.layers.push_back(nn::make_block(std::move(block)));
  }
  model.loss = nn::make_lm_head({.hidden = config.hidden,
                                 .vocab = config.vocab,
                                 .norm = nn::Norm::rms,
                                 .norm_eps = float(config.norm_eps),
                                 .weight_name = config.tied ? "embed.weight" : "lm_head.weight",
                                 .norm_files = {{"model.norm.weight", 0, config.hidden}},
                                 .norm_bias_files = {},
                                 .weight_files = {{"lm_head.weight", 0, config.vocab}},
                                 .init_std = init_std,
                                 .lora = options.lora});
  return model;
}

}  // namespace zeno::model
