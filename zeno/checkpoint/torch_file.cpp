#include "zeno/checkpoint/torch_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"

namespace zeno::checkpoint {
namespace {

constexpr uint64_t kMostPickleBytes = uint64_t(128) << 20;
constexpr int kMostDepth = 64;  // containers inside each other; also ends circles
// A few bytes can describe a tree of any size, with names of any length.
constexpr size_t kMostTensors = size_t(1) << 18;
constexpr size_t kMostVisits = size_t(1) << 22;
constexpr size_t kMostTensorNameBytes = 4096, kMostBytesOfNames = size_t(64) << 20;
constexpr int64_t kMostElements = int64_t(1) << 40;  // of a tensor

// In messages.
std::string shown_tensor(std::string_view name) { return shortened(name, 120); }

std::string key_text(const PickleNode& key) {
  if (key.text() != nullptr) return *key.text();
  if (key.integer() != nullptr) return std::to_string(*key.integer());
  return "?";
}

std::string joined(const std::string& name, const std::string& key) {
  return name.empty() ? key : fmt::format("{}.{}", name, key);
}

}  // namespace

int64_t TorchTensor::count() const {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

TorchFile TorchFile::open(const Path& path) {
  TorchFile file(ZipArchive::open(path));
  const std::string name = file.archive_.name_ending_in("data.pkl");
  file.folder_ = name.substr(0, name.size() - std::string_view("data.pkl").size());
  file.pickle_ = parse_pickle(file.archive_.read(file.archive_.at(name), kMostPickleBytes), path.string());
  file.collect(*file.pickle_.root, "", 0);
  return file;
}

void TorchFile::collect(const PickleNode& node, const std::string& name, int depth) {
  const std::string where = archive_.path().string();
  require(depth <= kMostDepth && tensors_.size() <= kMostTensors && ++visits_ <= kMostVisits &&
              name.size() <= kMostTensorNameBytes && name_bytes_ <= kMostBytesOfNames,
          ErrorKind::data, "[torch] {}: {} is nested too deeply or holds too much", where,
          shown_tensor(name));
  if (const PickleTensor* tensor = node.tensor()) {
    int64_t count = 1;
    for (int64_t size : tensor->shape) {
      require(size == 0 || count <= kMostElements / size, ErrorKind::data, "[torch] {}: {} is too large",
              where, shown_tensor(name));
      count *= size;
    }
    name_bytes_ += name.size();
    tensors_.push_back({name, tensor->dtype, tensor->shape, tensor});
  } else if (const PickleDict* dict = node.dict()) {
    for (const auto& [key, value] : dict->items) collect(*value, joined(name, key_text(*key)), depth + 1);
  } else if (const PickleList* list = node.list()) {
    for (size_t i = 0; i < list->items.size(); ++i)
      collect(*list->items[i], joined(name, std::to_string(i)), depth + 1);
  } else if (node.object() != nullptr && node.object()->state != nullptr) {
    collect(*node.object()->state, name, depth + 1);
  }
}

TorchExtent TorchFile::locate(const PickleTensor& tensor, std::string_view name) const {
  const std::string where = archive_.path().string();
  require(is_float(tensor.dtype), ErrorKind::data, "[torch] {}: {} holds no floating values", where,
          shown_tensor(name));
  int64_t count = 1;  // also the stride of a tensor without holes
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    const int64_t size = tensor.shape[i];
    require(size == 1 || tensor.stride[i] == count, ErrorKind::data,
            "[torch] {}: {} is not contiguous, expected a tensor as checkpoints hold it", where,
            shown_tensor(name));
    require(size == 0 || count <= kMostElements / size, ErrorKind::data, "[torch] {}: {} is too large", where,
            shown_tensor(name));
    count *= size;
  }
  const ZipArchive::Entry& entry = archive_.at(fmt::format("{}data/{}", folder_, tensor.storage));
  const uint64_t width = size_of(tensor.dtype), held = entry.bytes / width;
  require(uint64_t(tensor.offset) <= held && uint64_t(count) <= held - uint64_t(tensor.offset),
          ErrorKind::data, "[torch] {}: {} reaches beyond its storage", where, shown_tensor(name));
  return {entry.begin + uint64_t(tensor.offset) * width, tensor.dtype, count};
}

std::vector<float> TorchFile::read(const TorchTensor& tensor) const {
  const TorchExtent extent = locate(*tensor.source, tensor.name);
  std::vector<float> values(size_t(extent.count));
  read_floats(archive_.file(), extent, 0, extent.count, values.data());
  return values;
}

void read_floats(const File& file, const TorchExtent& extent, int64_t offset, int64_t count, float* out) {
  ensure(offset >= 0 && count >= 0 && offset + count <= extent.count, "[torch] elements [{}, +{}) of {}",
         offset, count, extent.count);
  dispatch_float(extent.dtype, [&]<class T>() {
    const uint64_t begin = extent.begin + uint64_t(offset) * sizeof(T);
    if constexpr (std::is_same_v<T, float>) {
      file.read_at(out, size_t(count) * sizeof(T), begin);
    } else {
      std::vector<T> values(static_cast<size_t>(count));
      file.read_at(values.data(), values.size() * sizeof(T), begin);
      std::transform(values.begin(), values.end(), out, [](T value) { return float(value); });
    }
  });
}

}  // namespace zeno::checkpoint
