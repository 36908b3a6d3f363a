#include "zeno/model/layers.h"

#include <set>

#include "zeno/base/error.h"
#include "zeno/model/family.h"

namespace zeno::model {

namespace {

std::shared_ptr<const nn::LoraOptions> choose_modules(const ModelConfig& config, const LoraOptions& lora) {
  check_lora(lora);
  const std::vector<nn::Parameter> plain = parameter_table(family_of(config.arch).build(config, {}));
  const auto contains = [](std::set<std::string, std::less<>> modules) {
    return [modules = std::move(modules)](std::string_view name) { return modules.contains(name); };
  };
  return std::make_shared<const nn::LoraOptions>(
      nn::LoraOptions{.rank = lora.rank,
                      .scale = float(lora.scale()),
                      .dropout = float(lora.dropout),
                      .adapts = contains(adapted_modules(lora.targets, linear_modules(plain))),
                      .trains = contains(saved_modules(lora.modules_to_save, plain))});
}

}  // namespace

nn::LayerList build_layers(const ModelConfig& config, int64_t max_positions, const Tuning& tuning) {
  require(max_positions >= 1 && max_positions <= kMaxPositions, ErrorKind::usage,
          "[model] sequence length is {}, expected 1 to {}", max_positions, kMaxPositions);
  return family_of(config.arch)
      .build(config, {.max_positions = max_positions,
                      .lora = tuning.lora ? choose_modules(config, *tuning.lora) : nullptr,
                      .neftune_alpha = tuning.neftune_alpha});
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
