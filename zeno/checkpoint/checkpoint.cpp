#include "zeno/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "zeno/base/error.h"
#include "zeno/base/math.h"
#include "zeno/checkpoint/state_file.h"

namespace zeno::checkpoint {
namespace {

// Opens a file of the checkpoint and compares its header with the manifest.
SafetensorsFile open_file(const Path& folder, const Manifest& manifest, const StateFile& stated) {
  const Path path = folder / stated.name;
  require(file_exists(path), ErrorKind::data, "[checkpoint] {}: the file is missing", path.string());
  SafetensorsFile file = SafetensorsFile::open(path);
  std::string header(file.data_begin(), '\0');
  File::open(path).read_at(header.data(), header.size(), 0);
  require(checksum_of(std::as_bytes(std::span(header))) == stated.header, ErrorKind::data,
          "[checkpoint] {}: the header is damaged; use an older checkpoint", path.string());
  for (const Extent& extent : stated.extents) {
    const std::string name = extent_name(manifest, extent);
    const TensorInfo* info = file.find(name);
    require(info != nullptr && info->count == extent.count && info->dtype == extent_dtype(manifest, extent),
            ErrorKind::data,
            "[checkpoint] {}: {} is missing or has another size or type than the manifest says",
            path.string(), name);
  }
  return file;
}

// An extent begins and ends within pages.
constexpr size_t kMostPages = size_t(kExtentElements) * sizeof(float) + 2 * kDirectAlign;

struct Loaded {
  PagePool::Block pages;
  std::span<const std::byte> bytes;  // of the extent
};

// Reads whole pages past the page cache; the end of a file is no page, and comes the ordinary way.
Loaded read_pages(const SafetensorsFile& file, const File& direct, PagePool& pool, uint64_t begin,
                  uint64_t bytes) {
  const uint64_t first = begin / kDirectAlign * kDirectAlign, end = begin + bytes;
  const uint64_t bulk =
      std::min(round_up<uint64_t>(end, kDirectAlign), direct.size() / kDirectAlign * kDirectAlign);
  require(round_up<uint64_t>(end - first, kDirectAlign) <= pool.bytes(), ErrorKind::data,
          "[checkpoint] {}: an extent has {} bytes, expected at most {} elements", file.path().string(),
          bytes, kExtentElements);
  Loaded loaded{pool.take(), {}};
  std::byte* memory = loaded.pages.get();
  if (bulk > first) direct.read_at(memory, bulk - first, first);
  const uint64_t rest = std::max(bulk, first);
  if (end > rest) File::open(file.path()).read_at(memory + (rest - first), end - rest, rest);
  loaded.bytes = {memory + (begin - first), bytes};
  return loaded;
}

Loaded load(const SafetensorsFile& file, const File& direct, PagePool& pool, const Manifest& manifest,
            const Extent& extent) {
  const std::string name = extent_name(manifest, extent);
  const TensorInfo& info = *file.find(name);
  Loaded loaded = read_pages(file, direct, pool, file.offset(info), info.end - info.begin);
  const uint64_t got = checksum_of(loaded.bytes);
  require(
      got == extent.checksum, ErrorKind::data,
      "[checkpoint] {}: {} ({} elements) is damaged: got checksum {:016x}, expected {:016x}; use an older "
      "checkpoint",
      file.path().string(), name, extent.count, got, extent.checksum);
  return loaded;
}

template <class T>
void to_floats(const std::byte* from, std::span<float> out) {
  if constexpr (std::is_same_v<T, float>) {
    std::memcpy(out.data(), from, out.size_bytes());
  } else {
    for (float& value : out) {
      T stored;
      std::memcpy(&stored, from, sizeof(T));
      from += sizeof(T);
      value = float(stored);
    }
  }
}

// "12 extents, of a.weight, b.bias and 3 more tensors"
std::string contents_of(const Manifest& manifest, const StateFile& file) {
  constexpr size_t kNamed = 8;
  std::vector<std::string> names;
  for (const Extent& extent : file.extents) {
    if (!extent.fills()) names.push_back(manifest.tensors[size_t(extent.tensor)].name);
  }
  std::ranges::sort(names);
  names.erase(std::ranges::unique(names).begin(), names.end());
  const size_t named = std::min(kNamed, names.size());
  std::string text = fmt::format("{} extents, of {}", file.extents.size(),
                                 fmt::join(names.begin(), names.begin() + std::ptrdiff_t(named), ", "));
  if (names.size() > named) text += fmt::format(" and {} more tensors", names.size() - named);
  return text;
}

}  // namespace

Manifest read_manifest(const Path& folder) {
  const Path manifest = folder / kManifestName;
  require(file_exists(manifest), ErrorKind::data,
          "[checkpoint] {}: there is no {}, so this is no finished checkpoint", folder.string(),
          kManifestName);
  return parse_manifest(read_file(manifest), manifest.string());
}

Checkpoint Checkpoint::open(const Path& folder, Files files) {
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  checkpoint.manifest_ = read_manifest(folder);
  checkpoint.pool_ = std::make_unique<PagePool>(kMostPages);
  checkpoint.index_files(files);
  return checkpoint;
}

void Checkpoint::index_files(Files which) {
  for (size_t i = 0; i < manifest_.states.size(); ++i) state_index_[manifest_.states[i].name] = int(i);
  for (size_t i = 0; i < manifest_.tensors.size(); ++i) tensor_index_[manifest_.tensors[i].name] = int(i);
  for (size_t f = 0; f < manifest_.files.size(); ++f) {
    const StateFile& stated = manifest_.files[f];
    files_.emplace_back();
    if (which == Files::all || file_exists(folder_ / stated.name))
      files_.back() = {open_file(folder_, manifest_, stated), File::open_direct(folder_ / stated.name)};
    for (size_t e = 0; e < stated.extents.size(); ++e) {
      const Extent& extent = stated.extents[e];
      if (extent.fills()) continue;
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
    const StateFile& stated = manifest_.files[place->file];
    const OpenFile& file = files_[place->file];
    require(file.header.has_value(), ErrorKind::data,
            "[checkpoint] {}: {} is not here, and {} of {} needs it", folder_.string(), stated.name, state,
            tensor);
    const Loaded loaded = load(*file.header, *file.pages, *pool_, manifest_, stated.extents[place->extent]);
    const int64_t count = std::min(end, place->begin + place->count) - at;
    dispatch_float(manifest_.states[size_t(s->second)].dtype, [&]<class T>() {
      const std::byte* values = loaded.bytes.data() + size_t(at - place->begin) * sizeof(T);
      to_floats<T>(values, out.subspan(size_t(at - begin), size_t(count)));
    });
    at += count;
  }
}

std::vector<std::string> find_damage(const Path& folder) {
  std::vector<std::string> damage;
  try {
    const Manifest manifest = read_manifest(folder);
    for (const StateFile& stated : manifest.files) {
      try {
        const SafetensorsFile file = open_file(folder, manifest, stated);
        const File pages = File::open_direct(folder / stated.name);
        PagePool pool(kMostPages);
        for (const Extent& extent : stated.extents) {
          try {
            load(file, pages, pool, manifest, extent);
          } catch (const Error& error) {
            damage.push_back(error.what());
          }
        }
      } catch (const Error& error) {
        damage.push_back(fmt::format("{}; in it: {}", error.what(), contents_of(manifest, stated)));
      }
    }
  } catch (const Error& error) {
    damage.push_back(error.what());
  }
  return damage;
}

}  // namespace zeno::checkpoint
