#include "zeno/config/tuning.h"

#include <fmt/format.h>

#include "zeno/base/error.h"
#include "zeno/model/adapter.h"

namespace zeno::config {
namespace {

// Names may be joined by commas, as other tools have it. In an expression a comma is a part of it.
std::vector<std::string> split_targets(const std::vector<std::string>& targets) {
  std::vector<std::string> names;
  for (const std::string& target : targets) {
    if (target.find_first_of("\\()[]{}|*+?^$") != std::string::npos) {
      names.push_back(target);
      continue;
    }
    for (size_t begin = 0; begin <= target.size();) {
      const size_t end = std::min(target.find(',', begin), target.size());
      if (end > begin) names.push_back(target.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return names;
}

// Do both lists mean the same layers of the model? They may say it in different words.
bool same_modules(const Path& model, const std::vector<std::string>& a, const std::vector<std::string>& b) {
  const nn::LayerList layers = model::build_layers(model::load_config(model), 1);
  const std::vector<std::string> modules = model::linear_modules(model::parameter_table(layers));
  return model::adapted_modules(a, modules) == model::adapted_modules(b, modules);
}

// The adapter to continue training decides; flags may only repeat its values.
model::LoraOptions continued(const LoraConfig& lora, const Path& model) {
  model::LoraOptions adapter = model::adapter_options(lora.adapter);
  const auto same = [&](bool ok, std::string_view flag, const auto& got, const auto& has) {
    require(ok, ErrorKind::usage,
            "[train] {}: got {}, expected {}, the value of the adapter in {}; leave it out", flag, got, has,
            lora.adapter);
  };
  same(lora.rank == 0 || lora.rank == adapter.rank, "--lora-rank", lora.rank, adapter.rank);
  same(lora.alpha == 0 || lora.alpha == adapter.alpha, "--lora-alpha", lora.alpha, adapter.alpha);
  same(!lora.rslora || adapter.rslora, "--rslora", "alpha / sqrt(rank)", "alpha / rank");
  const std::vector<std::string> targets = split_targets(lora.targets);
  same(targets.empty() || same_modules(model, targets, adapter.targets), "--lora-targets",
       fmt::format("{}", fmt::join(targets, " ")), fmt::format("{}", fmt::join(adapter.targets, " ")));
  same(lora.modules_to_save.empty() || split_targets(lora.modules_to_save) == adapter.modules_to_save,
       "--modules-to-save", fmt::format("{}", fmt::join(lora.modules_to_save, " ")),
       fmt::format("{}", fmt::join(adapter.modules_to_save, " ")));
  if (lora.dropout > 0) adapter.dropout = lora.dropout;
  return adapter;
}

}  // namespace

model::Tuning tuning_of(const TrainConfig& config, bool trains) {
  const LoraConfig& lora = config.lora;
  model::Tuning tuning{.lora = {}, .neftune_alpha = config.data.neftune_alpha};
  require(!lora.dora, ErrorKind::usage, "[train] --dora: is not supported; leave it out");
  if (!lora.adapter.empty()) {
    tuning.lora = continued(lora, config.run.model);
  } else if (lora.rank > 0) {
    tuning.lora = model::LoraOptions{.rank = lora.rank,
                                     .alpha = lora.alpha > 0 ? lora.alpha : 2 * double(lora.rank),
                                     .dropout = lora.dropout,
                                     .rslora = lora.rslora,
                                     .targets = split_targets(lora.targets),
                                     .modules_to_save = split_targets(lora.modules_to_save)};
  } else {
    require(lora.targets.empty() && lora.modules_to_save.empty() && lora.alpha == 0 && lora.dropout == 0 &&
                !lora.rslora,
            ErrorKind::usage,
            "[train] --lora-alpha, --lora-dropout, --lora-targets, --modules-to-save, --rslora: got no "
            "--lora-rank, expected one such as --lora-rank 16; without it all weights are trained");
    require(!trains || lora.quantize_base == BaseDtype::none, ErrorKind::usage,
            "[train] --quantize-base nf4: got no --lora-rank, expected one such as --lora-rank 16; only a "
            "frozen base can be kept in 4 bits");
  }
  return tuning;
}

}  // namespace zeno::config
