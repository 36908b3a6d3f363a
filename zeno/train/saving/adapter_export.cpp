#include "zeno/train/saving/adapter_export.h"

#include <algorithm>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/checkpoint/checkpoint.h"
#include "zeno/model/adapter.h"
#include "zeno/model/adapter_config.h"
#include "zeno/model/export.h"
#include "zeno/model/layers.h"
#include "zeno/train/saving/run_state.h"

namespace zeno::train {
namespace {

RunState run_of(const Path& checkpoint) {
  return parse_run_state(checkpoint::read_manifest(checkpoint).run, checkpoint.string());
}

void check_folders(const AdapterExport& options, const Path& base) {
  require(file_exists(base / "config.json"), ErrorKind::usage,
          "[export] {}: the run started from {}, where there is no config.json; name the folder with --base",
          options.checkpoint.string(), base.string());
  require(!file_exists(options.out / "config.json"), ErrorKind::usage,
          "[export] {}: holds a whole model, and this would add an adapter; choose another folder",
          options.out.string());
  require(options.overwrite || !file_exists(options.out / "adapter_config.json"), ErrorKind::usage,
          "[export] {}: already holds an adapter; choose another folder or give --overwrite",
          options.out.string());
}

}  // namespace

bool holds_adapter(const Path& checkpoint) { return !run_of(checkpoint).adapter.empty(); }

void export_adapter(const AdapterExport& options) {
  const RunState run = run_of(options.checkpoint);
  const Path base = options.base.empty() ? Path(run.model) : options.base;
  check_folders(options, base);
  const checkpoint::Checkpoint saved = checkpoint::Checkpoint::open(options.checkpoint);
  const model::LoraOptions lora = model::parse_adapter_config(run.adapter, options.checkpoint.string()).lora;
  const model::ModelConfig config = model::load_config(base);
  const std::vector<nn::Parameter> table =
      model::parameter_table(model::build_layers(config, 1, {.lora = lora}));
  make_folders(options.out);
  model::AdapterWriter writer(options.out, {config, lora, base.string()}, table);
  std::vector<float> values;
  for (const nn::Parameter& param : table) {
    if (!param.trainable) continue;
    for (int64_t begin = 0; begin < param.count(); begin += checkpoint::kExtentElements) {
      values.resize(size_t(std::min(checkpoint::kExtentElements, param.count() - begin)));
      saved.read("master", param.name, begin, values);
      writer.write(param, begin, values);
    }
  }
  writer.commit();
  model::copy_companions(base, options.out);
}

}  // namespace zeno::train
