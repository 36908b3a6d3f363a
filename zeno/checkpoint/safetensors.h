// Reader of one .safetensors file: 8 bytes of header length (little endian), a JSON header, then the tensors'
// bytes. The header is not trusted: names, types, shapes and offsets are checked against each other and
// against the size of the file before anything is read, and a violation is an Error(data) naming file,
// tensor, got and expected. Reading a header takes linear time and a small multiple of its bytes.
//
// A SafetensorsFile owns its descriptor. Calls block; const calls may come from several threads at once.
// Values are read on demand, by range: a whole tensor never has to fit into memory.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/base/dtype.h"
#include "zeno/base/file.h"

namespace zeno::checkpoint {

using Metadata = std::map<std::string, std::string>;

// Longest header: the limit of the format's own library.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

struct TensorInfo {
  std::string name;
  std::string_view type;       // as the file spells it: "BF16"
  std::optional<DType> dtype;  // empty: a type that Zeno has no use for (and refuses to convert)
  std::vector<int64_t> shape;
  int64_t count = 0;            // product of shape
  uint64_t begin = 0, end = 0;  // bytes, from the start of the data
};

// Name of a type in the file, and back. Empty for names that Zeno has no type for.
std::string_view safetensors_type(DType dtype);
std::optional<DType> parse_safetensors_type(std::string_view type);

// "[2, 3]", for messages.
std::string format_shape(const std::vector<int64_t>& shape);

class SafetensorsFile {
 public:
  static SafetensorsFile open(const Path& path);

  const Path& path() const { return file_.path(); }
  const Metadata& metadata() const { return metadata_; }
  // In the order of their bytes.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* find(std::string_view name) const;
  // XXH3 of all that comes before the bytes of tensors.
  uint64_t header_checksum() const { return header_checksum_; }
  // Where the bytes of tensors begin in the file, and those of one.
  uint64_t data_begin() const { return data_begin_; }
  uint64_t offset(const TensorInfo& tensor) const { return data_begin_ + tensor.begin; }

  // Elements [offset, offset + count) of a floating tensor (F64, F32, BF16, F16), converted to float.
  void read(const TensorInfo& tensor, int64_t offset, int64_t count, float* out) const;
  // Bytes [offset, offset + bytes) of a tensor of any type, as they are.
  void read_bytes(const TensorInfo& tensor, uint64_t offset, uint64_t bytes, void* out) const;

 private:
  explicit SafetensorsFile(File file) : file_(std::move(file)) {}
  void parse_header(std::string_view header, uint64_t data_bytes);
  void index_names();
  void check_layout(uint64_t data_bytes);

  File file_;
  uint64_t data_begin_ = 0, header_checksum_ = 0;
  Metadata metadata_;
  std::vector<TensorInfo> tensors_;
  std::vector<uint32_t> by_name_;  // tensors, sorted by name
};

}  // namespace zeno::checkpoint
