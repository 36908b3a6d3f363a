// The weights of a Hugging Face folder: model.safetensors, or shards listed in model.safetensors.index.json.
// Owns the open files; const calls may come from several threads at once.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/checkpoint/safetensors.h"

namespace zeno::checkpoint {

inline constexpr std::string_view kWeightsName = "model.safetensors";
inline constexpr std::string_view kIndexName = "model.safetensors.index.json";

// The files that a WeightFolder reads, whether they are there or not. An index that is damaged stands alone:
// the code that loads the weights reports it.
std::vector<Path> weight_files(const Path& folder);

// A tensor and the file it is in; both belong to the WeightFolder.
struct StoredTensor {
  const SafetensorsFile* file = nullptr;
  const TensorInfo* info = nullptr;

  explicit operator bool() const { return info != nullptr; }
  void read(int64_t offset, int64_t count, float* out) const { file->read(*info, offset, count, out); }
};

class WeightFolder {
 public:
  explicit WeightFolder(Path folder);

  const Path& path() const { return folder_; }
  // False (an empty StoredTensor) when there is none of that name.
  StoredTensor find(std::string_view name) const;
  const std::map<std::string, StoredTensor, std::less<>>& tensors() const { return tensors_; }

 private:
  void open_shards();

  Path folder_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
};

}  // namespace zeno::checkpoint
