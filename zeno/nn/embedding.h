// The first layer: token embedding, plus learned positions where the model has them. Owns no memory; calls
// are async on the given stream; immutable, so any thread may use it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "zeno/nn/layer.h"
#include "zeno/nn/lora.h"

namespace zeno::nn {

struct EmbeddingOptions {
  int64_t vocab = 0, hidden = 0;
  int64_t positions = 0;  // rows of the learned position table; 0: none
  std::string name = "embed";
  std::vector<FileSlice> table, position_table;
  bool tied = false;  // the head uses the same table: its gradient is dense then
  float init_std = 0.02f;
  std::shared_ptr<const LoraOptions> lora;  // null: trained
  double neftune_alpha = 0;  // where the batch has noise: uniform up to alpha / sqrt(T·C) is added (NEFTune)
};

// Parameters: <name>.weight [V, C], and <name>.positions [P, C].
std::unique_ptr<Layer> make_embedding(EmbeddingOptions options);

}  // namespace zeno::nn
