// Qwen2, Qwen2.5 (bias on q, k, v) and Qwen3 (norm of each query and key head).
#include <nlohmann/json.hpp>
#include <string>

#include "zeno/base/error.h"
#include "zeno/model/family.h"
#include "zeno/model/rope_decoder.h"

namespace zeno::model {
namespace {

using Json = nlohmann::json;

// transformers 5 lists the kind of every layer; before, layers from max_window_layers on had the window.
void read_windows(const ConfigKeys& keys, ModelConfig& config) {
  const bool used = keys.boolean("use_sliding_window", false) && !keys.is_null("sliding_window");
  const int64_t window = used ? keys.integer({"sliding_window"}, kMaxPositions, 4096) : 0;
  const Json* types = keys.find({"layer_types"});
  if (!types) {
    const int64_t first = keys.integer({"max_window_layers"}, kMaxPositions, 28, 0);
    for (int64_t layer = first; layer < config.layers; ++layer) config.windows[size_t(layer)] = window;
    return;
  }
  require(types->is_array() && int64_t(types->size()) == config.layers, ErrorKind::data,
          "[model] {}: \"layer_types\" is not a list of {} entries, one per layer", keys.where(),
          config.layers);
  for (size_t layer = 0; layer < types->size(); ++layer) {
    const Json& type = types->at(layer);
    require(type == "full_attention" || type == "sliding_attention", ErrorKind::data,
            "[model] {}: layer_types[{}] is not supported, expected full_attention or sliding_attention",
            keys.where(), layer);
    require(type == "full_attention" || window > 0, ErrorKind::data,
            "[model] {}: layer_types[{}] is sliding_attention, but there is no sliding_window in use",
            keys.where(), layer);
    config.windows[layer] = type == "full_attention" ? 0 : window;
  }
}

void read_qwen2(const ConfigKeys& keys, ModelConfig& config) {
  read_rope_decoder(keys, {.kv_heads = 32, .head_dim = 0, .max_positions = 32768}, config);
  config.qkv_bias = true;
  read_windows(keys, config);
}

void read_qwen3(const ConfigKeys& keys, ModelConfig& config) {
  read_rope_decoder(keys, {.kv_heads = 32, .head_dim = 128, .max_positions = 32768}, config);
  config.qkv_bias = config.out_bias = keys.boolean("attention_bias", false);
  config.qk_norm = true;
  read_windows(keys, config);
}

void write_windows(const ModelConfig& config, nlohmann::ordered_json& json) {
  int64_t window = 0;
  json["layer_types"] = nlohmann::ordered_json::array();
  for (int64_t w : config.windows) {
    json["layer_types"].push_back(w > 0 ? "sliding_attention" : "full_attention");
    window = w > 0 ? w : window;
  }
  json["use_sliding_window"] = window > 0;
  json["sliding_window"] = nullptr;
  if (window > 0) json["sliding_window"] = window;
}

void write_qwen2(const ModelConfig& config, nlohmann::ordered_json& json) {
  write_rope_decoder(config, json);
  write_windows(config, json);
}

void write_qwen3(const ModelConfig& config, nlohmann::ordered_json& json) {
  write_rope_decoder(config, json);
  json["attention_bias"] = config.qkv_bias;
  write_windows(config, json);
}

void preset_qwen2(ModelConfig& config) { config.qkv_bias = true; }
void preset_qwen3(ModelConfig& config) { config.qk_norm = true; }

}  // namespace

const Family kQwen2 = {Arch::qwen2,        "qwen2",     "Qwen2ForCausalLM", read_qwen2, write_qwen2,
                       build_rope_decoder, preset_qwen2};
const Family kQwen3 = {Arch::qwen3,        "qwen3",     "Qwen3ForCausalLM", read_qwen3, write_qwen3,
                       build_rope_decoder, preset_qwen3};

}  // namespace zeno::model
