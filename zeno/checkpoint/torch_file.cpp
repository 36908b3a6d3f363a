#include "zeno/checkpoint/torch_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "zeno/base/error.h"

namespace zeno::checkpoint {
namespace {

constexpr uint64_t kMostPickleBytes = uint64_t(256) << 20;
constexpr int kMostDepth = 64;  // containers inside each other; also ends circles
constexpr size_t kMostTensors = size_t(1) << 20;
constexpr int64_t kMostElements = int64_t(1) << 40;  // of a tensor

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
  require(depth <= kMostDepth && tensors_.size() <= kMostTensors, ErrorKind::data,
          "[torch] {}: {} is nested too deeply or holds too much", where, name);
  if (const PickleTensor* tensor = node.tensor()) {
    int64_t count = 1;
    for (int64_t size : tensor->shape) {
      require(size == 0 || count <= kMostElements / size, ErrorKind::data, "[torch] {}: {} is too large",
              where, name);
      count *= size;
    }
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

std::vector<float> TorchFile::read(const TorchTensor& tensor) const {
  const PickleTensor& source = *tensor.source;
  const std::string where = archive_.path().string();
  require(is_float(tensor.dtype), ErrorKind::data, "[torch] {}: {} holds no floating values", where,
          tensor.name);
  int64_t expected = 1;  // stride of a tensor without holes
  for (size_t i = source.shape.size(); i-- > 0;) {
    require(source.shape[i] == 1 || source.stride[i] == expected, ErrorKind::data,
            "[torch] {}: {} is not contiguous, expected a tensor as checkpoints hold it", where, tensor.name);
    expected *= source.shape[i];
  }
  const ZipArchive::Entry& entry = archive_.at(fmt::format("{}data/{}", folder_, source.storage));
  const uint64_t width = size_of(tensor.dtype);
  const uint64_t count = uint64_t(tensor.count());
  require(uint64_t(source.offset) <= entry.bytes / width &&
              count <= entry.bytes / width - uint64_t(source.offset),
          ErrorKind::data, "[torch] {}: {} reaches beyond its storage", where, tensor.name);
  std::vector<std::byte> bytes(count * width);
  archive_.read(entry, uint64_t(source.offset) * width, bytes.data(), bytes.size());
  std::vector<float> values(count);
  dispatch_float(tensor.dtype, [&]<class T>() {
    const T* from = reinterpret_cast<const T*>(bytes.data());
    std::transform(from, from + count, values.begin(), [](T value) { return float(value); });
  });
  return values;
}

}  // namespace zeno::checkpoint
