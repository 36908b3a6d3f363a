#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "zeno/base/error.h"
#include "zeno/base/file.h"
#include "zeno/base/newer_version.h"
#include "zeno/checkpoint/checkpoint.h"
#include "zeno/checkpoint/deepspeed.h"
#include "zeno/checkpoint/deepspeed_folder.h"
#include "zeno/checkpoint/safetensors.h"
#include "zeno/checkpoint/state_file.h"
#include "zeno/checkpoint/torch_file.h"
#include "zeno/device/ledger.h"
#include "zeno/model/layers.h"
#include "zeno/model/weights.h"

namespace zeno::cli {
namespace {

void show_contents(const checkpoint::Manifest& manifest) {
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
             manifest.ranks, elements, format_bytes(bytes));
}

std::string older_whole(const Path& folder) {
  for (const Path& other : checkpoint::list_checkpoints(folder.parent_path())) {
    const bool older =
        checkpoint::step_of(other.filename().string()) < checkpoint::step_of(folder.filename().string());
    if (older && checkpoint::find_damage(other).empty()) return fmt::format("{} is complete", other.string());
  }
  return "there is no older complete checkpoint beside it";
}

// A checkpoint: what it holds, then every byte of it.
void show_checkpoint(const Path& given) {
  const Path path = std::filesystem::canonical(given);
  const std::vector<std::string> damage = checkpoint::find_damage(path);
  try {
    show_contents(checkpoint::read_manifest(path));
  } catch (const NewerVersion&) {
    throw;
  } catch (const Error&) {  // then it is in the list of damage
  }
  for (const std::string& line : damage) fmt::print("{}\n", line);
  require(damage.empty(), ErrorKind::data, "[inspect] {}: damaged ({}); {}", path.string(),
          damage.size() == 1 ? "1 place" : fmt::format("{} places", damage.size()), older_whole(path));
  fmt::print("all checksums are correct\n");
}

// A checkpoint of DeepSpeed's: what it holds, every value of it, then the checksums of its files.
void show_deepspeed(const Path& path) {
  const checkpoint::DeepSpeedCheckpoint found = checkpoint::DeepSpeedCheckpoint::open(path);
  const checkpoint::DeepSpeedRun& run = found.run();
  std::array<int64_t, 3> elements{};
  std::vector<float> values;
  for (const checkpoint::DeepSpeedTensor& tensor : found.tensors()) {
    std::string states;
    for (const checkpoint::DeepSpeedState state : checkpoint::kDeepSpeedStates) {
      if (!tensor.has(state)) continue;
      states += fmt::format(" {}", checkpoint::name_of(state));
      elements[size_t(state)] += tensor.count();
      constexpr int64_t kPiece = 1 << 20;
      for (int64_t begin = 0; begin < tensor.count(); begin += kPiece) {
        values.resize(size_t(std::min(kPiece, tensor.count() - begin)));
        found.read(tensor, state, begin, values);
      }
    }
    fmt::print("{:<60} {}{}\n", tensor.name, checkpoint::format_shape(tensor.shape), states);
  }
  for (const auto& [name, holder] : found.shared()) fmt::print("{:<60} same as {}\n", name, holder);
  found.verify();
  fmt::print(
      "DeepSpeed {} checkpoint of step {}{}: {}stage {}, written by {} ranks, {} parameters, {} with "
      "moments; all checksums are correct\n",
      run.version, run.steps, run.skipped > 0 ? fmt::format(" ({} skipped)", run.skipped) : "",
      run.universal ? "universal, from " : "", run.stage, run.ranks, elements[0], elements[1]);
  if (!run.without_moments.empty()) fmt::print("no moments: {}\n", run.without_moments);
}

// Anything that looks like weights is read, so that what is wrong with it is said.
bool holds_weights(const Path& folder) {
  constexpr std::string_view kEndings[] = {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json"};
  return std::ranges::any_of(list_folder(folder), [&](const std::string& name) {
    return std::ranges::any_of(kEndings, [&](std::string_view ending) { return name.ends_with(ending); });
  });
}

// Every value of the weights; they must fit the table.
void read_weights(const std::string& path, const std::vector<nn::Parameter>& table) {
  const model::WeightReader weights(path, table);
  std::vector<float> values;
  for (const nn::Parameter& param : table) {
    constexpr int64_t kPiece = 1 << 20;
    for (int64_t begin = 0; begin < param.count(); begin += kPiece) {
      values.resize(size_t(std::min(kPiece, param.count() - begin)));
      weights.read(param, begin, begin + int64_t(values.size()), values.data());
    }
  }
}

// A model folder: opens and checks everything that training would read. Weights may be missing.
void show_model(const std::string& path) {
  const model::ModelConfig config = model::load_config(path);
  const nn::LayerList layers = model::build_layers(config, std::min<int64_t>(config.max_positions, 1024));
  const std::vector<nn::Parameter> table = model::parameter_table(layers);
  const bool weights = holds_weights(path);
  if (weights) read_weights(path, table);
  int64_t total = 0;
  for (const nn::Parameter& param : table) {
    fmt::print("{:<36} {:>8} × {:<8}\n", param.name, param.rows, param.cols);
    total += param.count();
  }
  fmt::print("{}: {} blocks, hidden {}, {} heads ({} key/value), vocabulary {}, {} parameters, {} in {}\n",
             model::name_of(config.arch), config.layers, config.hidden, config.heads, config.kv_heads,
             config.vocab, total, name_of(config.dtype), format_bytes(size_t(total) * size_of(config.dtype)));
  if (!weights) fmt::print("this folder has no weights; this is what config.json describes\n");
}

// Reads what extents of a file cover, each byte once: tensors may share their storages.
void read_covered(const File& file, std::vector<checkpoint::TorchExtent> extents) {
  constexpr uint64_t kPiece = uint64_t(1) << 20;
  std::ranges::sort(extents, {}, &checkpoint::TorchExtent::begin);
  std::vector<std::byte> piece(kPiece);
  uint64_t done = 0;
  for (const checkpoint::TorchExtent& extent : extents) {
    const uint64_t end = extent.begin + uint64_t(extent.count) * size_of(extent.dtype);
    for (done = std::max(done, extent.begin); done < end;) {
      const uint64_t bytes = std::min(kPiece, end - done);
      file.read_at(piece.data(), bytes, done);
      done += bytes;
    }
  }
}

// A file of torch.save (.pt, .bin): the tensors in it, read.
void show_torch_file(const Path& path) {
  const checkpoint::TorchFile file = checkpoint::TorchFile::open(path);
  std::vector<checkpoint::TorchExtent> extents;
  for (const checkpoint::TorchTensor& tensor : file.tensors()) {
    fmt::print("{:<60} {} {}\n", tensor.name, name_of(tensor.dtype), checkpoint::format_shape(tensor.shape));
    if (is_float(tensor.dtype)) extents.push_back(file.locate(*tensor.source, tensor.name));
  }
  read_covered(file.archive().file(), std::move(extents));
  fmt::print("{} tensors\n", file.tensors().size());
}

void show_safetensors(const Path& path) {
  const checkpoint::SafetensorsFile file = checkpoint::SafetensorsFile::open(path);
  for (const checkpoint::TensorInfo& tensor : file.tensors())
    fmt::print("{:<60} {} {}\n", tensor.name, tensor.type, checkpoint::format_shape(tensor.shape));
  fmt::print("{} tensors\n", file.tensors().size());
}

void run(const std::string& path) {
  require(path_exists(path), ErrorKind::data, "[inspect] {}: no such file or folder; check the path", path);
  if (file_exists(path))
    return path.ends_with(".safetensors") ? show_safetensors(path) : show_torch_file(path);
  require(folder_exists(path), ErrorKind::usage,
          "[inspect] {}: expected a model, a checkpoint, a safetensors file or a torch.save file", path);
  const std::string name = std::filesystem::canonical(path).filename().string();
  if (file_exists(Path(path) / checkpoint::kManifestName) || checkpoint::step_of(name))
    return show_checkpoint(path);
  if (checkpoint::find_deepspeed(path)) return show_deepspeed(path);
  if (const Path adapter = Path(path) / "adapter_model.safetensors"; file_exists(adapter))
    return show_safetensors(adapter);
  const std::vector<Path> inside = checkpoint::list_checkpoints(path);
  require(inside.empty(), ErrorKind::usage,
          "[inspect] {}: holds {} checkpoint{}, expected one; give its folder, the newest is {}", path,
          inside.size(), inside.size() == 1 ? "" : "s", inside.empty() ? "" : inside.front().string());
  show_model(path);
}

}  // namespace

void add_inspect(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "inspect", "check and describe a model, a checkpoint, a safetensors file or a torch file");
  auto path = std::make_shared<std::string>();
  command->add_option("path", *path, "folder or file")->type_name("PATH")->required();
  command->callback([path] { run(*path); });
}

}  // namespace zeno::cli
