#include "zeno/plan/report/deepspeed_estimate.h"

#include <algorithm>

#include "zeno/model/layers.h"
#include "zeno/zero/policy.h"

namespace zeno::plan {

std::vector<DeepSpeedEstimate> deepspeed_estimates(double params, double largest_layer, int ranks,
                                                   int node_ranks) {
  constexpr double kHostFactor = 1.5;
  const double n = ranks, local = node_ranks;
  // A host builds the whole model once for each of its GPUs before it is cut, in fp32.
  const double building = params * 4 * local * kHostFactor;
  const double gathered = 4 * largest_layer, sharing = local / n;
  return {
      {2, false, false, 4 * params + 16 * params / n, building},
      {2, true, false, 2 * params, params * std::max(4 * local, 16.0) * kHostFactor},
      // From here on the model is built in pieces (zero.Init).
      {3, false, false, gathered + 18 * params / n, largest_layer * 4 * local * kHostFactor},
      {3, true, false, gathered + 2 * params / n, params * 16 * sharing * kHostFactor},
      {3, true, true, gathered, params * 18 * sharing * kHostFactor},
  };
}

int64_t largest_module(const nn::LayerList& model) {
  int64_t largest = 0;
  for (const nn::Parameter& parameter : model::parameter_table(model)) {
    if (parameter.files.empty()) largest = std::max(largest, parameter.count());
    for (const nn::FileSlice& file : parameter.files) largest = std::max(largest, file.rows * parameter.cols);
  }
  return largest;
}

std::vector<Purpose> left_out_by_deepspeed(int stage) {
  std::vector<Purpose> purposes{Purpose::buckets, Purpose::activations, Purpose::logits,   Purpose::workspace,
                                Purpose::staging, Purpose::inputs,      Purpose::libraries};
  if (!zero::shards_parameters(stage)) purposes.push_back(Purpose::gathered);
  return purposes;
}

}  // namespace zeno::plan
