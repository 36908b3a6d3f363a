// One row per architecture: how its config.json is read and written, and which layers it has. A new
// architecture adds a row to families() and one file. Only for the .cpp files of this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>

#include "zeno/model/config.h"
#include "zeno/model/config_keys.h"
#include "zeno/nn/layer.h"
#include "zeno/nn/lora.h"

namespace zeno::model {

// Largest values that are taken seriously; products of any two stay far from overflow.
inline constexpr int64_t kMaxHidden = 1 << 24;
inline constexpr int64_t kMaxIntermediate = 1 << 26;
inline constexpr int64_t kMaxHeads = 1 << 16;
inline constexpr int64_t kMaxHeadDim = 256;  // of the attention kernels
inline constexpr int64_t kMaxLayers = 1 << 11;
inline constexpr int64_t kMaxVocab = (int64_t(1) << 31) - 1;  // token ids are 32-bit
inline constexpr int64_t kMaxPositions = (int64_t(1) << 31) - 1;
inline constexpr double kMaxParameters = 1e13;  // a plan of more takes minutes

// What a model is built for.
struct BuildOptions {
  int64_t max_positions = 1;                    // the longest sequence that will be run
  std::shared_ptr<const nn::LoraOptions> lora;  // null: all weights are trained
  double neftune_alpha = 0;
};

struct Family {
  Arch arch;
  std::string_view model_type;  // "llama"
  std::string_view class_name;  // "LlamaForCausalLM", in "architectures"
  void (*read)(const ConfigKeys& keys, ModelConfig& config);
  void (*write)(const ModelConfig& config, nlohmann::ordered_json& json);
  nn::LayerList (*build)(const ModelConfig& config, const BuildOptions& options);
  void (*preset)(
      ModelConfig& config);  // what the architecture fixes, for a model that has no config.json yet
};

std::span<const Family> families();
const Family& family_of(Arch arch);

extern const Family kGpt2, kLlama, kMistral, kQwen2, kQwen3;

}  // namespace zeno::model
