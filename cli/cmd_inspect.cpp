#include <CLI/CLI.hpp>

#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "zeno/base/error.h"
#include "zeno/device/ledger.h"
#include "zeno/model/layers.h"
#include "zeno/model/weights.h"

namespace zeno::cli {
namespace {

// A model folder: opens and checks everything that training would read.
void run(const std::string& path) {
  require(std::filesystem::is_directory(path), ErrorKind::usage, "[inspect] {}: expected a model folder",
          path);
  const model::ModelConfig config = model::load_config(path);
  const nn::LayerList layers = model::build_layers(config, std::min<int64_t>(config.max_positions, 1024));
  const std::vector<nn::Parameter> table = model::parameter_table(layers);
  const model::WeightReader weights(path, table);
  int64_t total = 0;
  std::vector<float> values;
  for (const nn::Parameter& param : table) {
    constexpr int64_t kPiece = 1 << 20;
    for (int64_t begin = 0; begin < param.count(); begin += kPiece) {
      values.resize(size_t(std::min(kPiece, param.count() - begin)));
      weights.read(param, begin, begin + int64_t(values.size()), values.data());
    }
    fmt::print("{:<36} {:>8} × {:<8}\n", param.name, param.rows, param.cols);
    total += param.count();
  }
  fmt::print("{}: {} blocks, hidden {}, {} heads ({} key/value), vocabulary {}, {} parameters, {} in {}\n",
             model::name_of(config.arch), config.layers, config.hidden, config.heads, config.kv_heads,
             config.vocab, total, name_of(config.dtype), format_bytes(size_t(total) * size_of(config.dtype)));
}

}  // namespace

void add_inspect(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("inspect", "what a model folder holds; reads and checks every weight");
  auto path = std::make_shared<std::string>();
  command->add_option("path", *path, "model folder")->required();
  command->callback([path] { run(*path); });
}

}  // namespace zeno::cli
