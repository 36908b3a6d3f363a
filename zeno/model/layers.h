// From a model's configuration to its layers: the list that the engine runs and the parameter table that
// everything else (allocation, sharding, import, export) reads.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "zeno/model/config.h"
#include "zeno/model/lora.h"
#include "zeno/nn/layer.h"

namespace zeno::model {

// What training changes about a model.
struct Tuning {
  std::optional<LoraOptions> lora;  // train adapters only: everything else is frozen
  double neftune_alpha = 0;         // noise on embeddings; 0: none
};

// `max_positions` is the longest sequence that will be run. Error(usage) if the model cannot take it, or if
// the targets of adapters match nothing.
nn::LayerList build_layers(const ModelConfig& config, int64_t max_positions, const Tuning& tuning = {});

// All parameters in table order; a tied one occurs once, as its first layer declares it.
std::vector<nn::Parameter> parameter_table(const nn::LayerList& model);

}  // namespace zeno::model
