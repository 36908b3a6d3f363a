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

// Where the contiguous values of a tensor are in the file.
struct TorchExtent {
  uint64_t begin = 0;  // bytes from the start of the file
  DType dtype = DType::f32;
  int64_t count = 0;
};

class TorchFile {
 public:
  // Error(data) for what torch.save did not write, or what holds more than tensors and containers.
  static TorchFile open(const Path& path);

  const Path& path() const { return archive_.path(); }
  const ZipArchive& archive() const { return archive_; }
  const PickleNode& root() const { return *pickle_.root; }
  // In the order of the file.
  const std::vector<TorchTensor>& tensors() const { return tensors_; }
  // All values of a floating tensor, as floats. Error(data) when they are not where they should be.
  std::vector<float> read(const TorchTensor& tensor) const;
  // Error(data) for a tensor that is not floating, not contiguous or not inside its storage; `name` says
  // which.
  TorchExtent locate(const PickleTensor& tensor, std::string_view name) const;

 private:
  explicit TorchFile(ZipArchive archive) : archive_(std::move(archive)) {}
  void collect(const PickleNode& node, const std::string& name, int depth);

  ZipArchive archive_;
  std::string folder_;  // of the archive's entries
  Pickle pickle_;
  std::vector<TorchTensor> tensors_;
  // Nodes visited and bytes of tensor names; shared nodes count each time.
  size_t visits_ = 0, name_bytes_ = 0;
};

// Elements [offset, offset + count) of an extent, as floats.
void read_floats(const File& file, const TorchExtent& extent, int64_t offset, int64_t count, float* out);

}  // namespace zeno::checkpoint
