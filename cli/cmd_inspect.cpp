#include <CLI/CLI.hpp>

#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "zeno/base/error.h"
#include "zeno/checkpoint/checkpoint.h"
#include "zeno/checkpoint/safetensors.h"
#include "zeno/checkpoint/state_file.h"
#include "zeno/checkpoint/torch_file.h"
#include "zeno/device/ledger.h"
#include "zeno/model/layers.h"
#include "zeno/model/weights.h"

namespace zeno::cli {
namespace {

// A checkpoint: what it holds, then every byte of it.
void show_checkpoint(const Path& path) {
  const checkpoint::Checkpoint found = checkpoint::Checkpoint::open(path);
  const checkpoint::Manifest& manifest = found.manifest();
  int64_t elements = 0;
  uint64_t bytes = 0;
  for (const checkpoint::StateTensor& tensor : manifest.tensors) {
    fmt::print("{:<36} {:>8} × {:<8}\n", tensor.name, tensor.rows, tensor.cols);
    elements += tensor.count();
  }
  for (const checkpoint::StateFile& file : manifest.files) {
    fmt::print("{}: {} extents, {}\n", file.name, file.extents.size(), format_bytes(file.bytes));
    bytes += file.bytes;
  }
  for (const checkpoint::StateKind& state : manifest.states)
    fmt::print("{} in {}\n", state.name, name_of(state.dtype));
  fmt::print("checkpoint of step {}, written by {} ranks: {} trained parameters, {}\n", manifest.step,
             manifest.world, elements, format_bytes(bytes));
  const std::vector<std::string> damage = found.verify();
  for (const std::string& line : damage) fmt::print("{}\n", line);
  if (damage.empty()) {
    fmt::print("every checksum is right\n");
    return;
  }
  std::string older = "there is no older checkpoint beside it";
  for (const Path& other : checkpoint::list_checkpoints(path.parent_path())) {
    if (checkpoint::step_of(other.filename().string()) >= manifest.step) continue;
    if (!checkpoint::Checkpoint::open(other).verify().empty()) continue;
    older = fmt::format("{} is whole", other.string());
    break;
  }
  fail(ErrorKind::data, "[inspect] {}: {} damaged extents; {}", path.string(), damage.size(), older);
}

// A model folder: opens and checks everything that training would read.
void show_model(const std::string& path) {
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

// A file of torch.save (.pt, .bin): the tensors in it, each read once.
void show_torch_file(const Path& path) {
  const checkpoint::TorchFile file = checkpoint::TorchFile::open(path);
  for (const checkpoint::TorchTensor& tensor : file.tensors()) {
    fmt::print("{:<60} {} {}\n", tensor.name, name_of(tensor.dtype), checkpoint::format_shape(tensor.shape));
    if (is_float(tensor.dtype)) file.read(tensor);
  }
  fmt::print("{} tensors\n", file.tensors().size());
}

void show_safetensors(const Path& path) {
  const checkpoint::SafetensorsFile file = checkpoint::SafetensorsFile::open(path);
  for (const checkpoint::TensorInfo& tensor : file.tensors())
    fmt::print("{:<60} {} {}\n", tensor.name, tensor.type, checkpoint::format_shape(tensor.shape));
  fmt::print("{} tensors\n", file.tensors().size());
}

void run(const std::string& path) {
  if (file_exists(path))
    return path.ends_with(".safetensors") ? show_safetensors(path) : show_torch_file(path);
  require(std::filesystem::is_directory(path), ErrorKind::usage,
          "[inspect] {}: expected a model, a checkpoint, a safetensors file or a file of torch.save", path);
  if (file_exists(Path(path) / checkpoint::kManifestName)) return show_checkpoint(path);
  show_model(path);
}

}  // namespace

void add_inspect(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "inspect", "what a model, a checkpoint, a safetensors or a torch file holds; reads and checks it");
  auto path = std::make_shared<std::string>();
  command->add_option("path", *path, "folder or file")->required();
  command->callback([path] { run(*path); });
}

}  // namespace zeno::cli
