// The last layer: final norm, projection to the vocabulary and cross-entropy, forward and backward in one
// pass. Only rows with a target are computed, and logits exist one chunk of rows at a time. Owns no
// memory; calls are async on the given stream; immutable, so any thread may use it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "zeno/nn/layer.h"
#include "zeno/nn/lora.h"
#include "zeno/nn/norm.h"

namespace zeno::nn {

struct LmHeadOptions {
  int64_t hidden = 0, vocab = 0;
  Norm norm = Norm::rms;
  float norm_eps = 1e-5f;
  std::string weight_name = "lm_head.weight";  // "embed.weight" when tied
  std::vector<FileSlice> norm_files, norm_bias_files, weight_files;
  float init_std = 0.02f;
  std::shared_ptr<const LoraOptions> lora;  // null: trained
};

// Parameters: final_norm.weight, final_norm.bias (LayerNorm), and `weight_name` [V, C].
std::unique_ptr<LossLayer> make_lm_head(LmHeadOptions options);

}  // namespace zeno::nn
