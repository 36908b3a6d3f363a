#include "zeno/model/adapter.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "zeno/base/error.h"
#include "zeno/model/adapter_config.h"
#include "zeno/model/file_map.h"

namespace zeno::model {
namespace {

using checkpoint::SafetensorsFile;
using checkpoint::TensorInfo;

constexpr std::string_view kFileName = "adapter_model.safetensors";
constexpr std::string_view kPrefix = "base_model.model.", kA = ".lora_A.weight";
// A trained table of embeddings that the head shares stands in the file twice: PEFT asks for both.
constexpr std::string_view kEmbedding = "embed.weight", kTiedHead = "base_model.model.lm_head.weight";

SafetensorsFile open_weights(const Path& folder) {
  const Path path = folder / kFileName;
  require(file_exists(path), ErrorKind::data,
          "[adapter] {}: not found; expected a folder that PEFT or Zeno wrote (adapter_model.bin is not "
          "supported)",
          path.string());
  return SafetensorsFile::open(path);
}

// Whole modules stand in an adapter's file under their own names.
std::string tensor_name(const nn::Parameter& parameter, const FilePart& part) {
  return parameter.adapter ? part.slice->name : std::string(kPrefix).append(part.slice->name);
}

void check_tensor(const SafetensorsFile& file, const nn::Parameter& parameter, const FilePart& part) {
  const std::string name = tensor_name(parameter, part);
  const TensorInfo* tensor = file.find(name);
  require(tensor != nullptr, ErrorKind::data, "[adapter] {}: has no tensor {} (for our {})",
          file.path().string(), name, parameter.name);
  require(tensor->shape == part.shape, ErrorKind::data,
          "[adapter] {}: {} has shape {}, expected {}; the rank or the model is not that of this adapter",
          file.path().string(), name, checkpoint::format_shape(tensor->shape),
          checkpoint::format_shape(part.shape));
  const bool floating = tensor->type == "F64" || (tensor->dtype && is_float(*tensor->dtype));
  require(floating, ErrorKind::data, "[adapter] {}: {} has dtype {}, expected F32, BF16 or F16",
          file.path().string(), name, tensor->type);
}

// Is a table of embeddings trained that the head shares?
bool trains_tied(const std::vector<nn::Parameter>& table) {
  bool tied = true, trained = false;
  for (const nn::Parameter& parameter : table) {
    tied = tied && parameter.name != "lm_head.weight";
    trained = trained || (parameter.name == kEmbedding && parameter.trainable);
  }
  return tied && trained;
}

std::vector<checkpoint::TensorSpec> specs_of(const std::vector<nn::Parameter>& table) {
  const bool twice = trains_tied(table);
  std::vector<checkpoint::TensorSpec> specs;
  for (const nn::Parameter& parameter : table) {
    if (!parameter.trainable) continue;
    for (const FilePart& part : file_parts(parameter)) {
      specs.push_back({tensor_name(parameter, part), DType::f32, part.shape});
      if (twice && parameter.name == kEmbedding)
        specs.push_back({std::string(kTiedHead), DType::f32, part.shape});
    }
  }
  return specs;
}

}  // namespace

LoraOptions adapter_options(const Path& folder) {
  AdapterConfig config = load_adapter_config(folder);
  if (!config.pattern) return config.lora;
  config.lora.targets.clear();
  const SafetensorsFile file = open_weights(folder);
  for (const TensorInfo& tensor : file.tensors()) {
    std::string_view name = tensor.name;
    if (!name.starts_with(kPrefix) || !name.ends_with(kA)) continue;
    name.remove_prefix(kPrefix.size());
    config.lora.targets.emplace_back(name.substr(0, name.size() - kA.size()));
  }
  require(!config.lora.targets.empty(), ErrorKind::data, "[adapter] {}: has no tensor {}…{}",
          file.path().string(), kPrefix, kA);
  return config.lora;
}

AdapterReader::AdapterReader(const Path& folder, const std::vector<nn::Parameter>& table)
    : file_(open_weights(folder)) {
  std::set<std::string> used;
  for (const nn::Parameter& parameter : table) {
    if (!parameter.trainable) continue;
    for (const FilePart& part : file_parts(parameter)) {
      check_tensor(file_, parameter, part);
      used.insert(tensor_name(parameter, part));
    }
  }
  if (trains_tied(table)) {
    used.emplace(kTiedHead);
    require(load_adapter_config(folder).ties, ErrorKind::data,
            "[adapter] {}: trains embeddings separately from the head that shares them, expected "
            "\"ensure_weight_tying\": true",
            folder.string());
  }
  for (const TensorInfo& tensor : file_.tensors()) {
    require(used.contains(tensor.name), ErrorKind::data,
            "[adapter] {}: {} does not belong to an adapted layer of this model", file_.path().string(),
            tensor.name);
  }
}

void AdapterReader::read(const nn::Parameter& parameter, int64_t begin, int64_t end, float* out) const {
  ensure(parameter.trainable && begin >= 0 && begin <= end && end <= parameter.count(),
         "[adapter] {}: elements [{}, {}) of {}", parameter.name, begin, end, parameter.count());
  for (const FilePart& part : file_parts(parameter)) {
    const int64_t from = std::max(begin, part.begin), to = std::min(end, part.end);
    if (from >= to) continue;
    float* const values = out + (from - begin);
    file_.read(*file_.find(tensor_name(parameter, part)), from - part.begin, to - from, values);
    const float* const bad =
        std::find_if(values, values + (to - from), [](float value) { return !std::isfinite(value); });
    require(bad == values + (to - from), ErrorKind::data,
            "[adapter] {}: {} holds a value that is not finite; the file is damaged or the run diverged",
            file_.path().string(), part.slice->name);
  }
}

AdapterWriter::AdapterWriter(const Path& folder, const Options& options,
                             const std::vector<nn::Parameter>& table)
    : folder_(folder),
      config_text_(
          adapter_config_text(options.lora, options.model, linear_modules(table), options.base_model)),
      twice_(trains_tied(table)),
      // PEFT asks for this entry.
      file_(folder / kFileName, specs_of(table), {{"format", "pt"}}) {}

void AdapterWriter::write(const nn::Parameter& parameter, int64_t begin, std::span<const float> values) {
  const int64_t end = begin + int64_t(values.size());
  ensure(parameter.trainable && begin >= 0 && end <= parameter.count(),
         "[adapter] {}: elements [{}, {}) of {}", parameter.name, begin, end, parameter.count());
  for (const FilePart& part : file_parts(parameter)) {
    const int64_t from = std::max(begin, part.begin), to = std::min(end, part.end);
    if (from >= to) continue;
    const auto bytes = std::as_bytes(values.subspan(size_t(from - begin), size_t(to - from)));
    const uint64_t offset = uint64_t(from - part.begin) * sizeof(float);
    file_.write(tensor_name(parameter, part), offset, bytes);
    if (twice_ && parameter.name == kEmbedding) file_.write(std::string(kTiedHead), offset, bytes);
  }
}

void AdapterWriter::commit() {
  file_.commit();
  replace_file(folder_ / "adapter_config.json", config_text_);
}

}  // namespace zeno::model
