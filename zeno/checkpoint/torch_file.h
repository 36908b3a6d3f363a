// A file of torch.save: tensors in nested containers, named by the way to them ("optimizer_state_dict.step",
// "groups.0"). Nothing of it is executed (pickle.h).
//
// Owns the open archive. Calls block; const calls may come from several threads at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "zeno/checkpoint/pickle.h"
#include "zeno/checkpoint/zip_archive.h"

namespace zeno::checkpoint {

struct TorchTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  const PickleTensor* source = nullptr;  // where the file says its values are
  int64_t count() const;
};

class TorchFile {
 public:
  // Error(data) for what torch.save did not write, or what holds more than tensors and containers.
  static TorchFile open(const Path& path);

  const PickleNode& root() const { return *pickle_.root; }
  // In the order of the file.
  const std::vector<TorchTensor>& tensors() const { return tensors_; }
  // All values of a floating tensor, as floats. Error(data) when they are not where they should be.
  std::vector<float> read(const TorchTensor& tensor) const;

 private:
  explicit TorchFile(ZipArchive archive) : archive_(std::move(archive)) {}
  void collect(const PickleNode& node, const std::string& name, int depth);

  ZipArchive archive_;
  std::string folder_;  // of the archive's entries
  Pickle pickle_;
  std::vector<TorchTensor> tensors_;
};

}  // namespace zeno::checkpoint
