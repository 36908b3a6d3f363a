#include <algorithm>
#include <memory>

#include "zeno/base/error.h"
#include "zeno/base/file.h"
#include "zeno/checkpoint/checkpoint.h"
#include "zeno/checkpoint/deepspeed_folder.h"
#include "zeno/checkpoint/safetensors_folder.h"
#include "zeno/model/adapter_weights.h"
#include "zeno/model/deepspeed_weights.h"
#include "zeno/model/export.h"
#include "zeno/model/layers.h"
#include "zeno/model/weights.h"

namespace zeno::model {
namespace {

// What makes a folder a model.
constexpr std::string_view kModelFiles[] = {"config.json", checkpoint::kWeightsName, checkpoint::kIndexName};

void check_out(const FolderExport& options) {
  for (const Path& input : {options.source, options.adapter}) {
    require(input.empty() || !same_file(input, options.out), ErrorKind::usage,
            "[export] {}: is both source and result; choose another folder for the result",
            options.out.string());
  }
  const bool taken =
      std::ranges::any_of(kModelFiles, [&](auto name) { return file_exists(options.out / name); });
  require(!taken || options.overwrite, ErrorKind::usage,
          "[export] {}: already holds a model; choose another folder or use --overwrite",
          options.out.string());
}

ParameterValues values_of(const FolderExport& options, const std::vector<nn::Parameter>& table) {
  // Shared: std::function wants to copy what it calls.
  if (!options.checkpoint.empty() && checkpoint::find_deepspeed(options.checkpoint)) {
    auto saved = std::make_shared<const checkpoint::DeepSpeedCheckpoint>(
        checkpoint::DeepSpeedCheckpoint::open(options.checkpoint));
    auto weights = std::make_shared<const WeightReader>(
        std::make_unique<DeepSpeedSource>(saved, checkpoint::DeepSpeedState::master), table);
    return [weights](const auto& p, int64_t begin, int64_t end, float* out) {
      weights->read(p, begin, end, out);
    };
  }
  if (!options.checkpoint.empty()) {
    auto saved =
        std::make_shared<const checkpoint::Checkpoint>(checkpoint::Checkpoint::open(options.checkpoint));
    for (const nn::Parameter& p : table) {
      require(saved->find(p.name) != nullptr, ErrorKind::data,
              "[export] {}: holds no {}; it is of another model, or of a run that trained adapters only",
              options.checkpoint.string(), p.name);
    }
    return [saved](const auto& p, int64_t begin, int64_t end, float* out) {
      saved->read("master", p.name, begin, {out, size_t(end - begin)});
    };
  }
  if (options.adapter.empty()) {
    auto weights = std::make_shared<const WeightReader>(options.source, table);
    return [weights](const auto& p, int64_t begin, int64_t end, float* out) {
      weights->read(p, begin, end, out);
    };
  }
  auto merged = std::make_shared<const MergedWeights>(options.source, options.adapter);
  return
      [merged](const auto& p, int64_t begin, int64_t end, float* out) { merged->read(p, begin, end, out); };
}

}  // namespace

void export_folder(const FolderExport& options) {
  const ModelConfig config = load_config(options.source);
  const std::vector<nn::Parameter> table = parameter_table(build_layers(config, 1));
  const ParameterValues values = values_of(options, table);
  check_out(options);
  require_room(options.out, table, options.dtype.value_or(config.dtype));
  for (const std::string_view name : kModelFiles) remove_file(options.out / name);
  copy_companions(options.source, options.out);
  if (!options.adapter.empty()) copy_companions(options.adapter, options.out);
  export_model(options.out, config, table, values,
               {.dtype = options.dtype.value_or(config.dtype), .max_shard_bytes = options.max_shard_bytes});
}

}  // namespace zeno::model
