#include "zeno/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/host.h"
#include "zeno/base/math.h"
#include "zeno/base/utf8.h"
#include "zeno/base/workers.h"
#include "zeno/checkpoint/state_file.h"
#include "zeno/device/buffer.h"

namespace zeno::checkpoint {
namespace {

// A file of the checkpoint, and where its extents are, in the order of the manifest.
struct OpenFile {
  SafetensorsFile file;
  std::vector<const TensorInfo*> places;
};

// Compares the header with the manifest.
OpenFile open_file(const Path& folder, const Manifest& manifest, const StateFile& stated) {
  const Path path = folder / stated.name;
  require(file_exists(path), ErrorKind::data, "[checkpoint] {}: the file is missing", path.string());
  OpenFile open{SafetensorsFile::open(path), {}};
  require(open.file.header_checksum() == stated.header, ErrorKind::data,
          "[checkpoint] {}: the header is damaged; use an older checkpoint", path.string());
  open.places.reserve(stated.extents.size());
  for (const Extent& extent : stated.extents) {
    const std::string name = extent_name(manifest, extent);
    const TensorInfo* info = open.file.find(name);
    require(info != nullptr && info->count == extent.count && info->dtype == extent_dtype(manifest, extent),
            ErrorKind::data,
            "[checkpoint] {}: {} is missing or has another size or type than the manifest says",
            path.string(), shortened(name, 200));
    open.places.push_back(info);
  }
  return open;
}

// What is read at once: little, so that it stays in the caches on its way from the disk to its place.
constexpr uint64_t kSlice = uint64_t(1) << 20;
static_assert(kExtentElements * sizeof(float) % kSlice == 0);
// It begins and ends within pages.
constexpr size_t pages_for(uint64_t bytes) { return bytes + 2 * kDirectAlign; }

// Bytes [begin, end) of a file by whole pages past the page cache; the end of a file is no page, and comes
// the ordinary way.
std::span<std::byte> read_pages(const File& direct, uint64_t begin, uint64_t end,
                                std::span<std::byte> pages) {
  const uint64_t first = begin / kDirectAlign * kDirectAlign;
  const uint64_t bulk =
      std::min(round_up<uint64_t>(end, kDirectAlign), direct.size() / kDirectAlign * kDirectAlign);
  if (bulk > first) direct.read_at(pages.data(), bulk - first, first);
  const uint64_t rest = std::max(bulk, first);
  if (end > rest) File::open(direct.path()).read_at(&pages[rest - first], end - rest, rest);
  return pages.subspan(begin - first, end - begin);
}

void check(const Path& path, const Manifest& manifest, const Extent& extent, uint64_t got) {
  require(
      got == extent.checksum, ErrorKind::data,
      "[checkpoint] {}: {} ({} elements) is damaged: got checksum {:016x}, expected {:016x}; use an older "
      "checkpoint",
      path.string(), shortened(extent_name(manifest, extent), 200), extent.count, got, extent.checksum);
}

// Lets threads through one after the other, by their numbers; when one has failed, the others do not wait for
// it.
class Turns {
 public:
  // False: there is no turn any more.
  bool wait(int64_t number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return next_ == number || failed_; });
    return !failed_;
  }
  void pass(int64_t number) {
    if (!wait(number)) return;
    const std::scoped_lock lock(mutex_);
    ++next_;
    changed_.notify_all();
  }
  void fail() {
    const std::scoped_lock lock(mutex_);
    failed_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t next_ = 0;
  bool failed_ = false;
};

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
    if (!extent.fills()) names.push_back(shortened(manifest.tensors[size_t(extent.tensor)].name, 60));
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  const size_t named = std::min(kNamed, names.size());
  std::string text = fmt::format("{} extents, of {}", file.extents.size(),
                                 fmt::join(names.begin(), names.begin() + std::ptrdiff_t(named), ", "));
  if (names.size() > named) text += fmt::format(" and {} more tensors", names.size() - named);
  return text;
}

}  // namespace

// Enough to keep a disk busy; with more, what they have read falls out of the caches before it is used.
int reading_threads(int cores) { return std::clamp(4 * cores, 4, 16); }

Manifest read_manifest(const Path& folder) {
  const Path manifest = folder / kManifestName;
  require(file_exists(manifest), ErrorKind::data,
          "[checkpoint] {}: there is no {}, so the checkpoint is not complete", folder.string(),
          kManifestName);
  return parse_manifest(read_file(manifest, kMaxManifestBytes), manifest.string());
}

Checkpoint Checkpoint::open(const Path& folder, Files files) {
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  checkpoint.manifest_ = read_manifest(folder);
  checkpoint.pool_ = std::make_unique<PagePool>(pages_for(kSlice));
  checkpoint.index_files(files);
  return checkpoint;
}

void Checkpoint::index_files(Files which) {
  for (size_t i = 0; i < manifest_.states.size(); ++i) state_index_[manifest_.states[i].name] = int(i);
  for (size_t i = 0; i < manifest_.tensors.size(); ++i) tensor_index_[manifest_.tensors[i].name] = int(i);
  for (size_t f = 0; f < manifest_.files.size(); ++f) {
    const StateFile& stated = manifest_.files[f];
    files_.emplace_back();
    std::optional<OpenFile> open;
    if (which == Files::all || file_exists(folder_ / stated.name)) {
      open = open_file(folder_, manifest_, stated);
      files_.back() = File::open_direct(folder_ / stated.name);
    }
    for (size_t e = 0; e < stated.extents.size(); ++e) {
      const Extent& extent = stated.extents[e];
      if (extent.fills()) continue;
      Place place{extent.begin, extent.count, f, e, 0, 0};
      if (open) {
        const TensorInfo& info = *open->places[e];
        place.offset = open->file.offset(info);
        place.bytes = info.end - info.begin;
      }
      places_[{extent.state, extent.tensor}].push_back(place);
    }
  }
  for (auto& [key, list] : places_) std::ranges::sort(list, {}, &Place::begin);
}

bool Checkpoint::has(std::string_view state) const { return state_index_.contains(state); }

const StateTensor* Checkpoint::find(std::string_view tensor) const {
  const auto found = tensor_index_.find(tensor);
  return found == tensor_index_.end() ? nullptr : &manifest_.tensors[size_t(found->second)];
}

void Checkpoint::add_parts(const StateStretch& stretch, size_t index, std::vector<Part>& parts) const {
  const auto s = state_index_.find(stretch.state);
  const auto t = tensor_index_.find(stretch.tensor);
  require(s != state_index_.end() && t != tensor_index_.end(), ErrorKind::data,
          "[checkpoint] {} holds no {} of {}", folder_.string(), stretch.state, stretch.tensor);
  const int64_t end = stretch.begin + stretch.count;
  const std::vector<Place>& list = places_.at({s->second, t->second});
  auto place = std::ranges::upper_bound(list, stretch.begin, {}, &Place::begin) - 1;
  for (int64_t at = stretch.begin; at < end; ++place) {
    require(files_[place->file].has_value(), ErrorKind::data,
            "[checkpoint] {}: {} is missing, and {} of {} needs it", folder_.string(),
            manifest_.files[place->file].name, stretch.state, stretch.tensor);
    const int64_t count = std::min(end, place->begin + place->count) - at;
    parts.push_back({index, &*place, at, count, manifest_.states[size_t(s->second)].dtype});
    at += count;
  }
}

// What one thread reads: one extent, or neighbours in a file that fit into a slice.
std::vector<std::span<const Checkpoint::Part>> Checkpoint::batches(std::span<const Part> parts) {
  std::vector<std::span<const Part>> result;
  size_t first = 0;
  for (size_t i = 1; i <= parts.size(); ++i) {
    if (i < parts.size()) {
      const Place &begin = *parts[first].place, &last = *parts[i - 1].place, &next = *parts[i].place;
      const uint64_t end = last.offset + last.bytes;
      const bool together = next.file == begin.file && next.offset >= end &&
                            next.offset <= end + kDirectAlign &&
                            next.offset + next.bytes - begin.offset <= kSlice;
      if (&next == &last || together) continue;
    }
    result.push_back(parts.subspan(first, i - first));
    first = i;
  }
  return result;
}

void Checkpoint::read_batch(std::span<const Part> batch, std::span<std::byte> pages,
                            const Taker& take) const {
  const Place &first = *batch.front().place, &last = *batch.back().place;
  const File& file = *files_[first.file];
  const uint64_t end = last.offset + last.bytes, most = pages.size() - pages_for(0);
  RunningChecksum sum;
  for (uint64_t at = first.offset; at < end; at += most) {
    const std::span<std::byte> slice = read_pages(file, at, std::min(at + most, end), pages);
    // Of a stretch of the file, what this slice has.
    const auto within = [&](uint64_t begin, uint64_t stop) {
      const uint64_t from = std::max(begin, at), to = std::min(stop, at + slice.size());
      return from < to ? slice.subspan(from - at, to - from) : std::span<std::byte>();
    };
    const Place* before = nullptr;
    for (const Part& part : batch) {
      const Place& place = *part.place;
      if (std::exchange(before, &place) == &place) continue;
      sum.add(within(place.offset, place.offset + place.bytes));
      if (place.offset + place.bytes > at + slice.size()) continue;
      check(file.path(), manifest_, manifest_.files[place.file].extents[place.extent], sum.value());
      sum = RunningChecksum();
    }
    for (const Part& part : batch) {
      const uint64_t size = size_of(part.dtype);
      const uint64_t begin = part.place->offset + uint64_t(part.begin - part.place->begin) * size;
      const std::span<std::byte> values = within(begin, begin + uint64_t(part.count) * size);
      if (values.empty()) continue;
      take(part.stretch, part.begin + int64_t((std::max(begin, at) - begin) / size), part.dtype, values);
    }
  }
}

void Checkpoint::read(std::string_view state, std::string_view tensor, int64_t begin,
                      std::span<float> out) const {
  std::vector<Part> parts;
  add_parts({state, tensor, begin, int64_t(out.size())}, 0, parts);
  const PagePool::Block pages = pool_->take();
  for (std::span<const Part> batch : batches(parts)) {
    read_batch(batch, {pages.get(), pool_->bytes()},
               [&](size_t, int64_t at, DType dtype, std::span<const std::byte> values) {
                 dispatch_float(dtype, [&]<class T>() {
                   to_floats<T>(values.data(), out.subspan(size_t(at - begin), values.size() / sizeof(T)));
                 });
               });
  }
}

void Checkpoint::read(std::span<const StateStretch> stretches, const Taker& take,
                      const ReadOptions& options) const {
  std::vector<Part> parts;
  for (size_t i = 0; i < stretches.size(); ++i) add_parts(stretches[i], i, parts);
  const std::vector<std::span<const Part>> all = batches(parts);
  Workers workers(options.threads);
  // Who waits for its turn has all of its extent.
  const size_t each = pages_for(options.in_order ? kExtentElements * sizeof(float) : kSlice);
  // In huge pages: a disk reads a third faster into them than into what is pinned for a GPU.
  const Block block = allocate_host(each * size_t(workers.threads()));
  const std::unique_ptr<std::byte, decltype(Block::release)> memory(block.data, block.release);
  Turns turns;
  workers.for_each(int64_t(all.size()), [&](int64_t i, int thread) {
    const std::span<std::byte> pages{memory.get() + size_t(thread) * each, each};
    if (!options.in_order) return read_batch(all[size_t(i)], pages, take);
    try {
      read_batch(all[size_t(i)], pages, [&](size_t stretch, int64_t begin, DType dtype, auto values) {
        if (turns.wait(i)) take(stretch, begin, dtype, values);
      });
      turns.pass(i);
    } catch (...) {
      turns.fail();
      throw;
    }
  });
}

namespace {

// A line for each extent of a file whose bytes are wrong or cannot be read.
void add_damaged_extents(const Manifest& manifest, const StateFile& stated, const OpenFile& open,
                         Workers& workers, PagePool& pool, std::vector<std::string>& damage) {
  const File direct = File::open_direct(open.file.path());
  std::vector<std::string> lines(stated.extents.size());
  workers.for_each(int64_t(lines.size()), [&](int64_t i, int) {
    try {
      const TensorInfo& info = *open.places[size_t(i)];
      const uint64_t begin = open.file.offset(info), end = begin + (info.end - info.begin);
      const PagePool::Block pages = pool.take();
      RunningChecksum sum;
      for (uint64_t at = begin; at < end; at += kSlice)
        sum.add(read_pages(direct, at, std::min(at + kSlice, end), {pages.get(), pool.bytes()}));
      check(direct.path(), manifest, stated.extents[size_t(i)], sum.value());
    } catch (const Error& error) {
      lines[size_t(i)] = error.what();
    }
  });
  for (std::string& line : lines) {
    if (!line.empty()) damage.push_back(std::move(line));
  }
}

}  // namespace

std::vector<std::string> find_damage(const Path& folder) {
  std::vector<std::string> damage;
  try {
    const Manifest manifest = read_manifest(folder);
    Workers workers(reading_threads(available_cores()));
    PagePool pool(pages_for(kSlice));
    for (const StateFile& stated : manifest.files) {
      try {
        add_damaged_extents(manifest, stated, open_file(folder, manifest, stated), workers, pool, damage);
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
