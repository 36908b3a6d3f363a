// Reads our parameters from a Hugging Face folder, or from whatever else has tensors under the same names, by
// range: a rank that owns a shard reads that shard and nothing else. Names, shapes and types of all tensors
// are checked once, at the start.
//
// Owns the open files. read() blocks; several threads may call it at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "zeno/base/file.h"
#include "zeno/model/tensor_source.h"
#include "zeno/nn/layer.h"

namespace zeno::model {

class WeightReader {
 public:
  // `table` as parameter_table() gives it; adapters are left out. Error(data) for a tensor that is missing,
  // has another shape, or is not of a floating type. Tensors that no parameter uses are logged in one
  // warning.
  WeightReader(const Path& folder, const std::vector<nn::Parameter>& table);
  WeightReader(std::unique_ptr<const TensorSource> source, const std::vector<nn::Parameter>& table);

  // Elements [begin, end) of a parameter, as float. A NaN or infinity is an Error(data) naming tensor and
  // index.
  void read(const nn::Parameter& parameter, int64_t begin, int64_t end, float* out) const;

  // Names in the folder that no parameter uses, without those known to be harmless.
  const std::vector<std::string>& unused() const { return unused_; }

 private:
  std::optional<SourceTensor> resolve(const std::string& name, bool has_head) const;
  void find_unused();

  std::unique_ptr<const TensorSource> source_;
  std::unordered_map<std::string, SourceTensor> stored_;  // by the name in the table
  std::vector<std::string> unused_;
};

}  // namespace zeno::model
