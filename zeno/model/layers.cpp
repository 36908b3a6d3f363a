#include "zeno/model/layers.h"

#include <set>

#include "zeno/base/error.h"
#include "zeno/model/family.h"

namespace zeno::model {

nn::LayerList build_layers(const ModelConfig& config, int64_t max_positions) {
  require(max_positions >= 1 && max_positions <= kMaxPositions, ErrorKind::usage,
          "[model] sequence length is {}, expected 1 to {}", max_positions, kMaxPositions);
  return family_of(config.arch).build(config, max_positions);
}

std::vector<nn::Parameter> parameter_table(const nn::LayerList& model) {
  std::vector<nn::Parameter> table;
  std::set<std::string> seen;
  const auto add = [&](std::vector<nn::Parameter> parameters) {
    for (nn::Parameter& parameter : parameters) {
      if (seen.insert(parameter.name).second) table.push_back(std::move(parameter));
    }
  };
  for (const auto& layer : model.layers) add(layer->parameters());
  if (model.loss) add(model.loss->parameters());
  return table;
}

}  // namespace zeno::model
