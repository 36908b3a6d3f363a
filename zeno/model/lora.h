// Low-rank adapters of a model: how large they are and which of its linear layers have one, said as PEFT says
// it. Plain values; any thread.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "zeno/nn/layer.h"

namespace zeno::model {

struct LoraOptions {
  int64_t rank = 16;
  double alpha = 32;
  double dropout = 0;   // of the adapters' inputs
  bool rslora = false;  // scale alpha / sqrt(rank) instead of alpha / rank
  // Names of modules or ends of them ("q_proj", "layers.0.mlp.up_proj"). A single entry may also be a regular
  // expression that matches whole names, or "all-linear": every linear layer of the blocks, as no entry is.
  std::vector<std::string> targets;
  // Modules that are also trained in full, and saved with the adapter: ends of names ("embed_tokens",
  // "lm_head", "norm"). With tied embeddings either of both means both.
  std::vector<std::string> modules_to_save;

  double scale() const;
};

// Throws Error(usage) for a rank, dropout or alpha that makes no sense.
void check_lora(const LoraOptions& options);

// The modules that may have an adapter, by the names of Hugging Face, in table order.
std::vector<std::string> linear_modules(const std::vector<nn::Parameter>& table);

// Those of `modules` that the targets mean. Error(usage) for a target that means none, with the names there
// are.
std::set<std::string, std::less<>> adapted_modules(const std::vector<std::string>& targets,
                                                   const std::vector<std::string>& modules);

// The modules that `names` mean, as PEFT matches them: by the end of the name. Error(usage) for one that
// means none, or a linear layer of a block.
std::set<std::string, std::less<>> saved_modules(const std::vector<std::string>& names,
                                                 const std::vector<nn::Parameter>& table);

// The targets in PEFT's notation: entries that match by the end of a name. A regular expression stays one
// entry.
struct TargetNames {
  bool pattern = false;
  std::vector<std::string> names;
};
TargetNames target_names(const std::vector<std::string>& targets, const std::vector<std::string>& modules);

}  // namespace zeno::model
