// Llama 2, 3 and 3.x, and Mistral.
#include <nlohmann/json.hpp>

#include "zeno/model/family.h"
#include "zeno/model/rope_decoder.h"

namespace zeno::model {
namespace {

void read_llama(const ConfigKeys& keys, ModelConfig& config) {
  read_rope_decoder(keys, {}, config);
  config.qkv_bias = config.out_bias = keys.boolean("attention_bias", false);
  config.mlp_bias = keys.boolean("mlp_bias", false);
}

void write_llama(const ModelConfig& config, nlohmann::ordered_json& json) {
  write_rope_decoder(config, json);
  json["attention_bias"] = config.qkv_bias;
  json["mlp_bias"] = config.mlp_bias;
}

// A window, when set, holds in every layer. Mistral 7B v0.1 has one; later versions say null. A file that
// does not mention it means 4096.
void read_mistral(const ConfigKeys& keys, ModelConfig& config) {
  read_rope_decoder(keys, {.kv_heads = 8, .head_dim = 0, .max_positions = 131072}, config);
  const int64_t size =
      keys.is_null("sliding_window") ? 0 : keys.integer({"sliding_window"}, kMaxPositions, 4096);
  config.windows.assign(size_t(config.layers), size);
}

void write_mistral(const ModelConfig& config, nlohmann::ordered_json& json) {
  write_rope_decoder(config, json);
  json["sliding_window"] = nullptr;
  if (config.windows.at(0) > 0) json["sliding_window"] = config.windows[0];
}

void preset_llama(ModelConfig& config) {
  config.norm_eps = 1e-5;
  config.tied = false;
}

}  // namespace

const Family kLlama = {Arch::llama,        "llama",     "LlamaForCausalLM", read_llama, write_llama,
                       build_rope_decoder, preset_llama};
const Family kMistral = {Arch::mistral, "mistral",          "MistralForCausalLM", read_mistral,
                         write_mistral, build_rope_decoder, preset_llama};

}  // namespace zeno::model
