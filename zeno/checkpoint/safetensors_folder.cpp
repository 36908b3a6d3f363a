#include "zeno/checkpoint/safetensors_folder.h"

#include <set>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"
#include "zeno/checkpoint/json_reader.h"

namespace zeno::checkpoint {
namespace {

// Tensor name → shard file, sorted by tensor.
std::map<std::string, std::string> read_index(const Path& path) {
  constexpr size_t kMostTensors = size_t(1) << 20;
  const std::string text = read_file(path, kMaxSafetensorsHeader);
  JsonReader reader(text, fmt::format("[weights] {}", path.string()));
  std::map<std::string, std::string> shards;
  std::string key, name, shard;
  bool found = false;
  reader.enter_object("index");
  while (reader.next_key(key)) {
    if (key != "weight_map") {
      reader.skip("value");
      continue;
    }
    found = true;
    for (reader.enter_object("\"weight_map\""); reader.next_key(name);) {
      reader.about(name);
      reader.string("shard", shard);
      // An index must not lead out of its folder.
      if (shard.empty() || Path(shard) != Path(shard).filename() || shard == "..")
        reader.fail(fmt::format("shard is \"{}\", expected a plain file name", shortened(shard, 120)));
      if (!shards.emplace(name, shard).second) reader.fail("occurs twice");
      if (shards.size() > kMostTensors)
        reader.fail(fmt::format("the index lists more than {} tensors", kMostTensors));
      reader.about("");
    }
  }
  reader.end();
  if (!found) reader.fail("has no \"weight_map\" object");
  return shards;
}

}  // namespace

std::vector<Path> weight_files(const Path& folder) {
  std::vector<Path> files{folder / kWeightsName};
  if (file_exists(files[0])) return files;
  files.push_back(folder / kIndexName);
  if (!file_exists(files[1])) return files;
  try {
    std::set<std::string> shards;
    for (const auto& [tensor, shard] : read_index(files[1])) shards.insert(shard);
    for (const std::string& shard : shards) files.push_back(folder / shard);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
  }
  return files;
}

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
         pickled ? "pytorch_model.bin is not supported; save the model again with safe_serialization=True"
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
            "[weights] {}: names {}, which is not in the folder; download it again", index.string(),
            shortened(shard, 120));
    position = files_.size();
    files_.push_back(SafetensorsFile::open(folder_ / shard));
  }
  for (const auto& [name, shard] : shards) {
    const SafetensorsFile& file = files_[opened[shard]];
    const TensorInfo* info = file.find(name);
    require(info != nullptr, ErrorKind::data, "[weights] {}: says that {} is in {}, but it is not",
            index.string(), shortened(name, 120), shortened(shard, 120));
    tensors_[name] = {&file, info};
  }
}

StoredTensor WeightFolder::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? StoredTensor{} : found->second;
}

}  // namespace zeno::checkpoint
