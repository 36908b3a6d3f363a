// What Llama, Mistral and Qwen have in common: pre-norm blocks with RMSNorm, rotary positions, grouped-query
// attention and SwiGLU, and one way to name their tensors. Only for the .cpp files of this folder.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "zeno/model/config.h"
#include "zeno/model/config_keys.h"
#include "zeno/model/family.h"
#include "zeno/nn/layer.h"

namespace zeno::model {

// Values a family assumes when the file is silent.
struct RopeDecoderDefaults {
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;  // 0: hidden / heads
  int64_t max_positions = 2048;
};

// Sizes, activation, norm, rope and tying; windows are set to none.
void read_rope_decoder(const ConfigKeys& keys, const RopeDecoderDefaults& defaults, ModelConfig& config);
void write_rope_decoder(const ModelConfig& config, nlohmann::ordered_json& json);
nn::LayerList build_rope_decoder(const ModelConfig& config, const BuildOptions& options);

}  // namespace zeno::model
