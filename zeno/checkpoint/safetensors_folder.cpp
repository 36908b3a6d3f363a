#include "zeno/checkpoint/safetensors_folder.h"

#include <nlohmann/json.hpp>

namespace zeno::checkpoint {
namespace {

using Json = nlohmann::json;

// Tensor name → shard file, sorted by tensor.
std::map<std::string, std::string> read_index(const Path& path) {
  const std::string file = path.string();
  Json json;
  try {
    json = Json::parse(read_file(path));
  } catch (const Json::exception& error) {
    fail(ErrorKind::data, "[weights] {}: not valid JSON: {}", file, error.what());
  }
  require(json.is_object() && json.contains("weight_map") && json["weight_map"].is_object(), ErrorKind::data,
          "[weights] {}: has no \"weight_map\" object", file);
  std::map<std::string, std::string> shards;
  for (const auto& [name, shard] : json["weight_map"].items()) {
    require(shard.is_string(), ErrorKind::data,
            "[weights] {}: shard of {} is a JSON {}, expected a file name", file, name, shard.type_name());
    const Path shard_path = shard.get<std::string>();
    // An index must not lead out of its folder.
    require(!shard_path.empty() && shard_path == shard_path.filename() && shard_path != "..", ErrorKind::data,
            "[weights] {}: shard of {} is \"{}\", expected a plain file name", file, name,
            shard_path.string());
    shards[name] = shard_path.string();
  }
  return shards;
}

}  // namespace

WeightFolder::WeightFolder(Path folder) : folder_(std::move(folder)) {
  if (file_exists(folder_ / kWeightsName)) {
    files_.push_back(SafetensorsFile::open(folder_ / kWeightsName));
    for (const TensorInfo& info : files_[0].tensors()) tensors_[info.name] = {&files_[0], &info};
  } else if (file_exists(folder_ / kIndexName)) {
    open_shards();
  } else {
    const bool pickled =
        file_exists(folder_ / "pytorch_model.bin") || file_exists(folder_ / "pytorch_model.bin.index.json");
    fail(ErrorKind::data, "[weights] {}: holds neither {} nor {}; {}", folder_.string(), kWeightsName,
         kIndexName,
         pickled ? "pytorch_model.bin is not supported: save the model again with safe_serialization=True"
                 : "give a Hugging Face model folder, or make one with zeno init");
  }
}

void WeightFolder::open_shards() {
  const Path index = folder_ / kIndexName;
  const auto shards = read_index(index);
  std::map<std::string, size_t> opened;
  for (const auto& [name, shard] : shards) opened.emplace(shard, 0);
  files_.reserve(opened.size());  // StoredTensor points into it
  for (auto& [shard, position] : opened) {
    require(file_exists(folder_ / shard), ErrorKind::data,
            "[weights] {}: names {}, which is not in the folder; download it again", index.string(), shard);
    position = files_.size();
    files_.push_back(SafetensorsFile::open(folder_ / shard));
  }
  for (const auto& [name, shard] : shards) {
    const SafetensorsFile& file = files_[opened[shard]];
    const TensorInfo* info = file.find(name);
    require(info != nullptr, ErrorKind::data, "[weights] {}: says that {} is in {}, but it is not",
            index.string(), name, shard);
    tensors_[name] = {&file, info};
  }
}

StoredTensor WeightFolder::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? StoredTensor{} : found->second;
}

}  // namespace zeno::checkpoint
