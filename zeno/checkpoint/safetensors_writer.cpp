#include "zeno/checkpoint/safetensors_writer.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "zeno/base/math.h"
#include "zeno/checkpoint/safetensors_folder.h"

namespace zeno::checkpoint {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Wide types first: with no holes allowed, this keeps every tensor aligned to its own element size.
std::vector<TensorSpec> aligned_order(std::vector<TensorSpec> tensors) {
  std::ranges::stable_sort(tensors, std::greater<>{}, [](const TensorSpec& t) { return size_of(t.dtype); });
  return tensors;
}

}  // namespace

int64_t TensorSpec::count() const {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

std::string safetensors_header(const std::vector<TensorSpec>& tensors, const Metadata& metadata,
                               size_t align) {
  OrderedJson::object_t header;
  if (!metadata.empty()) header.push_back({"__metadata__", metadata});
  uint64_t offset = 0;
  for (const TensorSpec& tensor : tensors) {
    // At the end without a search for the name: there may be many thousands.
    header.push_back({tensor.name, OrderedJson{{"dtype", std::string(safetensors_type(tensor.dtype))},
                                               {"shape", tensor.shape},
                                               {"data_offsets", {offset, offset + tensor.bytes()}}}});
    offset += tensor.bytes();
  }
  std::string text = OrderedJson(std::move(header)).dump();
  uint64_t length = text.size();
  length = round_up(length + sizeof(length), align) - sizeof(length);
  require(
      length <= kMaxSafetensorsHeader, ErrorKind::usage,
      "[safetensors] the header of {} tensors takes {} bytes, expected at most {}; use more ranks or files",
      tensors.size(), length, kMaxSafetensorsHeader);
  text.resize(length, ' ');
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
}

SafetensorsWriter::SafetensorsWriter(const Path& path, const std::vector<TensorSpec>& tensors,
                                     const Metadata& metadata)
    : replacing_(path) {
  const std::vector<TensorSpec> ordered = aligned_order(tensors);
  const std::string header = safetensors_header(ordered, metadata, 8);
  uint64_t offset = header.size();
  for (const TensorSpec& tensor : ordered) {
    const auto [place, fresh] = places_.try_emplace(tensor.name);
    ensure(fresh, "[safetensors] {}: tensor {} is written twice", path.string(), tensor.name);
    place->second.begin = offset;
    place->second.size = tensor.bytes();
    offset += tensor.bytes();
  }
  replacing_.file().write_at(header.data(), header.size(), 0);
  replacing_.file().resize(offset);
}

void SafetensorsWriter::write(std::string_view tensor, uint64_t offset, std::span<const std::byte> bytes) {
  const auto found = places_.find(std::string(tensor));
  ensure(found != places_.end(), "[safetensors] {}: no tensor {} was announced",
         replacing_.file().path().string(), tensor);
  Place& place = found->second;
  ensure(offset <= place.size && bytes.size() <= place.size - offset,
         "[safetensors] {}: bytes [{}, +{}) of {}, which has {}", replacing_.file().path().string(), offset,
         bytes.size(), tensor, place.size);
  replacing_.file().write_at(bytes.data(), bytes.size(), place.begin + offset);
  place.written += bytes.size();
}

void SafetensorsWriter::commit() {
  for (const auto& [name, place] : places_) {
    ensure(place.written == place.size, "[safetensors] {}: {} bytes of {} were written, expected {}",
           replacing_.file().path().string(), place.written.load(), name, place.size);
  }
  replacing_.commit();
}

void write_safetensors(const Path& path, const std::vector<TensorSource>& tensors, const Metadata& metadata) {
  std::vector<TensorSpec> specs;
  for (const TensorSource& tensor : tensors) specs.push_back(tensor.spec);
  SafetensorsWriter writer(path, specs, metadata);
  std::vector<std::byte> piece(1 << 20);
  for (const TensorSource& tensor : tensors) {
    for (uint64_t offset = 0; offset < tensor.spec.bytes(); offset += piece.size()) {
      const auto part =
          std::span(piece).first(std::min<uint64_t>(piece.size(), tensor.spec.bytes() - offset));
      tensor.fill(offset, part);
      writer.write(tensor.spec.name, offset, part);
    }
  }
  writer.commit();
}

WeightFolderWriter::WeightFolderWriter(Path folder, const std::vector<TensorSpec>& tensors,
                                       uint64_t max_shard_bytes, const Metadata& metadata)
    : folder_(std::move(folder)) {
  std::vector<std::vector<TensorSpec>> shards(1);
  uint64_t filled = 0;
  for (const TensorSpec& tensor : tensors) {
    if (filled > 0 && filled + tensor.bytes() > max_shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(tensor);
    shard_of_[tensor.name] = shards.size() - 1;
    filled += tensor.bytes();
    total_bytes_ += tensor.bytes();
  }
  shards_ = shards.size();
  make_folders(folder_);
  for (size_t i = 0; i < shards_; ++i) {
    files_.push_back(std::make_unique<SafetensorsWriter>(folder_ / shard_name(i), shards[i], metadata));
  }
}

std::string WeightFolderWriter::shard_name(size_t shard) const {
  return shards_ == 1 ? std::string(kWeightsName)
                      : fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards_);
}

void WeightFolderWriter::write(std::string_view tensor, uint64_t offset, std::span<const std::byte> bytes) {
  const auto found = shard_of_.find(std::string(tensor));
  ensure(found != shard_of_.end(), "[weights] {}: no tensor {} was announced", folder_.string(), tensor);
  files_[found->second]->write(tensor, offset, bytes);
}

void WeightFolderWriter::commit() {
  if (shards_ == 1) {
    files_[0]->commit();  // readers prefer this name: the new weights are in force from here on
    remove_file(folder_ / kIndexName);
  } else {
    remove_file(folder_ / kIndexName);  // no index while shards are being exchanged
    for (const auto& file : files_) file->commit();
    OrderedJson index = {{"metadata", {{"total_size", total_bytes_}}}, {"weight_map", OrderedJson::object()}};
    auto& map = index["weight_map"].get_ref<OrderedJson::object_t&>();
    const std::map<std::string, size_t> sorted(shard_of_.begin(), shard_of_.end());
    // Behind the others: [] would look through them all.
    for (const auto& [name, shard] : sorted) map.push_back({name, shard_name(shard)});
    replace_file(folder_ / kIndexName, index.dump(2) + "\n");
    remove_file(folder_ / kWeightsName);
  }
  remove_stale_shards();
}

// Shards of an earlier, differently cut set of weights.
void WeightFolderWriter::remove_stale_shards() const {
  std::set<std::string> ours;
  for (size_t i = 0; i < shards_; ++i) ours.insert(shard_name(i));
  for (const std::string& name : list_folder(folder_)) {
    const bool shard = name.starts_with("model-") && name.ends_with(".safetensors") &&
                       name.find("-of-") != std::string::npos;
    if (shard && !ours.contains(name)) remove_file(folder_ / name);
  }
}

}  // namespace zeno::checkpoint
