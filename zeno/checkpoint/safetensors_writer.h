// Writers of .safetensors files. The list of tensors is given first, then their bytes in any order and in
// pieces of any size, so that a whole model never has to fit into memory; the file appears under its name on
// commit() only.
//
// write() may be called from several threads at once. A writer that is destroyed without commit() leaves
// nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "zeno/base/dtype.h"
#include "zeno/base/file.h"
#include "zeno/checkpoint/safetensors.h"

namespace zeno::checkpoint {

struct TensorSpec {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;

  int64_t count() const;
  uint64_t bytes() const { return uint64_t(count()) * size_of(dtype); }
};

// What a file begins with: the length of the header, and the header, so that tensors follow one behind the
// other in the given order from a multiple of `align` on.
std::string safetensors_header(const std::vector<TensorSpec>& tensors, const Metadata& metadata,
                               size_t align);

class SafetensorsWriter {
 public:
  SafetensorsWriter(const Path& path, const std::vector<TensorSpec>& tensors, const Metadata& metadata = {});

  // Bytes of one tensor, from `offset` on; each byte is written once.
  void write(std::string_view tensor, uint64_t offset, std::span<const std::byte> bytes);
  // Checks that every byte was written, then makes the file durable and visible.
  void commit();

 private:
  struct Place {
    uint64_t begin = 0, size = 0;
    std::atomic<uint64_t> written{0};
  };
  ReplacingFile replacing_;
  std::unordered_map<std::string, Place> places_;
};

// A tensor whose bytes are asked for piece by piece, in order: fill(offset in bytes, where to put them).
struct TensorSource {
  TensorSpec spec;
  std::function<void(uint64_t offset, std::span<std::byte> out)> fill;
};
void write_safetensors(const Path& path, const std::vector<TensorSource>& tensors,
                       const Metadata& metadata = {});

// The weights of a Hugging Face folder: one file, or shards of at most `max_shard_bytes` (a larger tensor
// gets a shard of its own) and their index. commit() replaces older weights in the folder; a crash in the
// middle leaves the old weights or an incomplete folder that WeightFolder refuses, never a mixture.
class WeightFolderWriter {
 public:
  WeightFolderWriter(Path folder, const std::vector<TensorSpec>& tensors, uint64_t max_shard_bytes,
                     const Metadata& metadata = {});

  void write(std::string_view tensor, uint64_t offset, std::span<const std::byte> bytes);
  void commit();

 private:
  std::string shard_name(size_t shard) const;
  void remove_stale_shards() const;

  Path folder_;
  uint64_t total_bytes_ = 0;
  size_t shards_ = 1;
  std::vector<std::unique_ptr<SafetensorsWriter>> files_;
  std::unordered_map<std::string, size_t> shard_of_;
};

}  // namespace zeno::checkpoint
