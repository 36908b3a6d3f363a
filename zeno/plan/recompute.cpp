#include "zeno/plan/recompute.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "zeno/plan/offload.h"

namespace zeno::plan {
namespace {

// Layers that save something; the embedding does not.
int blocks_of(const nn::LayerList& model) {
  int blocks = 0;
  for (const auto& layer : model.layers) {
    blocks += layer->sizes({1, 1}, DType::f32, nn::Recompute::none).saved > 0;
  }
  return blocks;
}

}  // namespace

std::string_view name_of(nn::Recompute mode) {
  switch (mode) {
    case nn::Recompute::none:
      return "none";
    case nn::Recompute::selective:
      return "selective";
    case nn::Recompute::full:
      return "full";
  }
  return "?";
}

// Memory does not always fall with every block that recomputes (the last one of a kind may cost more in
// workspace than it saves), so all settings are looked at, from the fastest on.
void choose_recompute(const nn::LayerList& model, zero::EngineOptions& options, size_t limit) {
  const int blocks = blocks_of(model);
  zero::Policy& policy = options.policy;
  zero::Policy leanest = policy;
  size_t least = std::numeric_limits<size_t>::max();
  for (const auto& [mode, rest] : {std::pair{nn::Recompute::selective, nn::Recompute::none},
                                   std::pair{nn::Recompute::full, nn::Recompute::selective}}) {
    policy.recompute = mode;
    policy.recompute_rest = rest;
    for (policy.recompute_blocks = 0; policy.recompute_blocks <= blocks; ++policy.recompute_blocks) {
      const zero::MemoryPlan plan = zero::plan_memory(model, options);
      const size_t missing = missing_device_bytes(plan, options.device, {.device = limit});
      if (missing == 0) return;
      if (missing < least) leanest = policy;
      least = std::min(least, missing);
    }
  }
  policy = leanest;
}

std::string describe_recompute(const nn::LayerList& model, const zero::Policy& policy) {
  const int blocks = blocks_of(model);
  const int heavy = policy.recompute_blocks < 0 ? blocks : policy.recompute_blocks;
  if (heavy == blocks) return fmt::format("recompute: {}", name_of(policy.recompute));
  if (heavy == 0) return fmt::format("recompute: {}", name_of(policy.recompute_rest));
  return fmt::format("recompute: {} for {} of {} blocks, {} for the others", name_of(policy.recompute), heavy,
                     blocks, name_of(policy.recompute_rest));
}

}  // namespace zeno::plan
