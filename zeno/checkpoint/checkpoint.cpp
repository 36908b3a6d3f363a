#include "zeno/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "zeno/base/error.h"
#include "zeno/checkpoint/state_file.h"

namespace zeno::checkpoint {

Checkpoint Checkpoint::open(const Path& folder) {
  const Path manifest = folder / kManifestName;
  require(file_exists(manifest), ErrorKind::data,
          "[checkpoint] {}: there is no {}, so this is no finished checkpoint", folder.string(),
          kManifestName);
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  checkpoint.manifest_ = parse_manifest(read_file(manifest), manifest.string());
  checkpoint.index_files();
  return checkpoint;
}

void Checkpoint::index_files() {
  for (size_t i = 0; i < manifest_.states.size(); ++i) state_index_[manifest_.states[i].name] = int(i);
  for (size_t i = 0; i < manifest_.tensors.size(); ++i) tensor_index_[manifest_.tensors[i].name] = int(i);
  for (size_t f = 0; f < manifest_.files.size(); ++f) {
    const StateFile& stated = manifest_.files[f];
    const Path path = folder_ / stated.name;
    require(file_exists(path), ErrorKind::data, "[checkpoint] {}: the file is missing", path.string());
    files_.push_back(SafetensorsFile::open(path));
    for (size_t e = 0; e < stated.extents.size(); ++e) {
      const Extent& extent = stated.extents[e];
      const std::string name = extent_name(manifest_, extent);
      const TensorInfo* info = files_.back().find(name);
      require(info != nullptr && info->count == extent.count &&
                  info->dtype == manifest_.states[size_t(extent.state)].dtype,
              ErrorKind::data,
              "[checkpoint] {}: {} is missing or has another size or type than the manifest says",
              path.string(), name);
      places_[{extent.state, extent.tensor}].push_back({extent.begin, extent.count, f, e});
    }
  }
  for (auto& [key, list] : places_) std::ranges::sort(list, {}, &Place::begin);
}

bool Checkpoint::has(std::string_view state) const { return state_index_.contains(state); }

const StateTensor* Checkpoint::find(std::string_view tensor) const {
  const auto found = tensor_index_.find(tensor);
  return found == tensor_index_.end() ? nullptr : &manifest_.tensors[size_t(found->second)];
}

std::vector<std::byte> Checkpoint::load(size_t file, const Extent& extent) const {
  const SafetensorsFile& from = files_[file];
  const std::string name = extent_name(manifest_, extent);
  const TensorInfo& info = *from.find(name);
  std::vector<std::byte> bytes(info.end - info.begin);
  from.read_bytes(info, 0, bytes.size(), bytes.data());
  const uint64_t got = checksum_of(bytes);
  require(
      got == extent.checksum, ErrorKind::data,
      "[checkpoint] {}: {} ({} elements) is damaged: got checksum {:016x}, expected {:016x}; use an older "
      "checkpoint",
      from.path().string(), name, extent.count, got, extent.checksum);
  return bytes;
}

void Checkpoint::read(std::string_view state, std::string_view tensor, int64_t begin,
                      std::span<float> out) const {
  const auto s = state_index_.find(state);
  const auto t = tensor_index_.find(tensor);
  require(s != state_index_.end() && t != tensor_index_.end(), ErrorKind::data,
          "[checkpoint] {} holds no {} of {}", folder_.string(), state, tensor);
  const int64_t end = begin + int64_t(out.size());
  const std::vector<Place>& list = places_.at({s->second, t->second});
  auto place = std::ranges::upper_bound(list, begin, {}, &Place::begin) - 1;
  for (int64_t at = begin; at < end; ++place) {
    const std::vector<std::byte> bytes =
        load(place->file, manifest_.files[place->file].extents[place->extent]);
    const int64_t count = std::min(end, place->begin + place->count) - at;
    dispatch_float(manifest_.states[size_t(s->second)].dtype, [&]<class T>() {
      const T* values = reinterpret_cast<const T*>(bytes.data()) + (at - place->begin);
      std::transform(values, values + count, &out[size_t(at - begin)], [](T value) { return float(value); });
    });
    at += count;
  }
}

std::vector<std::string> Checkpoint::verify() const {
  std::vector<std::string> damage;
  for (size_t f = 0; f < manifest_.files.size(); ++f) {
    for (const Extent& extent : manifest_.files[f].extents) {
      try {
        load(f, extent);
      } catch (const Error& error) {
        damage.push_back(error.what());
      }
    }
  }
  return damage;
}

}  // namespace zeno::checkpoint
