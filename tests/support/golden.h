// Reads the committed golden files (tools/golden_*.py) in tests. A minimal safetensors reader: it trusts its
// input, which is ours; the library's own reader is zeno/checkpoint. Owns the bytes; views live as long as
// the object.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/device/tensor.h"

namespace zeno::test {

class Golden {
 public:
  // `path` is relative to tests/golden.
  explicit Golden(const std::string& path) {
    const std::string full = std::string(ZENO_SOURCE_DIR) + "/tests/golden/" + path;
    std::ifstream file(full, std::ios::binary);
    require(file.good(), ErrorKind::io, "[golden] cannot open {}; run tools/golden_*.py", full);
    const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
    const char* begin = bytes.data() + sizeof(header_bytes);
    const auto header = nlohmann::json::parse(begin, begin + header_bytes);
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") {
        metadata_ = entry.get<std::map<std::string, std::string>>();
        continue;
      }
      const auto offsets = entry["data_offsets"].get<std::vector<size_t>>();
      const char* data = begin + header_bytes;
      tensors_[name] = {entry["dtype"].get<std::string>(),
                        entry["shape"].get<std::vector<int64_t>>(),
                        {data + offsets[0], data + offsets[1]}};
    }
  }

  bool has(const std::string& name) const { return tensors_.contains(name); }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, entry] : tensors_) all.push_back(name);
    return all;
  }

  // A view: leading dimensions become rows, vectors are [1, n].
  Tensor view(const std::string& name) const {
    const auto found = tensors_.find(name);
    require(found != tensors_.end(), ErrorKind::data, "[golden] no tensor {}; run tools/golden_*.py", name);
    const Entry& e = found->second;
    const int64_t cols = e.shape.empty() ? 1 : e.shape.back();
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < e.shape.size(); ++i) rows *= e.shape[i];
    return {const_cast<char*>(e.bytes.data()), e.dtype == "I32" ? DType::i32 : DType::f32, rows, cols};
  }
  std::vector<float> floats(const std::string& name) const {
    const Tensor t = view(name);
    return {t.as<float>(), t.as<float>() + t.count()};
  }
  std::vector<int32_t> ints(const std::string& name) const {
    const Tensor t = view(name);
    return {t.as<int32_t>(), t.as<int32_t>() + t.count()};
  }

 private:
  struct Entry {
    std::string dtype;
    std::vector<int64_t> shape;
    std::vector<char> bytes;
  };
  std::map<std::string, Entry> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace zeno::test
