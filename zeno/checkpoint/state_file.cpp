#include "zeno/checkpoint/state_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>

#include "zeno/base/disk_operation.h"
#include "zeno/base/error.h"
#include "zeno/checkpoint/safetensors_writer.h"

namespace zeno::checkpoint {
namespace {

std::string note_name(int rank, int ranks) { return fmt::format("rank-{:04}-of-{:04}.json", rank, ranks); }

std::vector<TensorSpec> specs_of(const Manifest& manifest, const std::vector<Extent>& extents) {
  std::vector<TensorSpec> specs;
  for (const Extent& extent : extents)
    specs.push_back({extent_name(manifest, extent), extent_dtype(manifest, extent), {extent.count}});
  return specs;
}

}  // namespace

std::string state_file_name(int rank, int ranks) {
  return fmt::format("rank-{:04}-of-{:04}.safetensors", rank, ranks);
}

std::string swap_file_name(int rank, int ranks) {
  return fmt::format("rank-{:04}-of-{:04}-swap.safetensors", rank, ranks);
}

std::string swap_header(const Manifest& manifest, const std::vector<Extent>& extents, size_t bytes) {
  std::string header = safetensors_header(specs_of(manifest, extents), {}, bytes);
  return header.size() == bytes ? header : std::string();
}

StateFile seal_swap_file(const Path& path, const std::string& header, std::vector<Extent> extents) {
  File file = File::open_to_write(path);
  file.write_at(header.data(), header.size(), 0);
  file.sync();
  return {path.filename().string(), file.size(), checksum_of(std::as_bytes(std::span(header))),
          std::move(extents)};
}

StateFileWriter::StateFileWriter(const Path& folder, const Manifest& manifest, int rank,
                                 std::vector<Extent> extents)
    : file_{state_file_name(rank, manifest.ranks), 0, 0, std::move(extents)},
      replacing_(folder / file_.name) {
  const std::vector<TensorSpec> specs = specs_of(manifest, file_.extents);
  const std::string header = safetensors_header(specs, {}, kDirectAlign);
  replacing_.file().write_at(header.data(), header.size(), 0);
  file_.bytes = header.size();
  file_.header = checksum_of(std::as_bytes(std::span(header)));
  for (const TensorSpec& spec : specs) sizes_.push_back(spec.bytes());
}

namespace {

// Checksums of stretches of a row of bytes that comes in parts.
class RowOfSums {
 public:
  explicit RowOfSums(const std::vector<size_t>& sizes) : sizes_(sizes) {}
  template <class Done>
  void add(std::span<const std::byte> bytes, const Done& done) {
    while (!bytes.empty()) {
      const size_t count = std::min(bytes.size(), sizes_[index_] - inside_);
      sum_.add(bytes.first(count));
      bytes = bytes.subspan(count);
      inside_ += count;
      if (inside_ < sizes_[index_]) return;
      done(index_++, sum_.value());
      sum_ = RunningChecksum();
      inside_ = 0;
    }
  }

 private:
  const std::vector<size_t>& sizes_;
  size_t index_ = 0, inside_ = 0;
  RunningChecksum sum_;
};

}  // namespace

// While a part is written, its checksums are taken, which leaves the disk alone, and the next one is fetched.
void StateFileWriter::write(const Image& image, size_t part) {
  size_t total = 0;
  for (size_t size : sizes_) total += size;
  RowOfSums sums(sizes_);
  File direct = File::open_direct_to_write(replacing_.path());
  std::span<const std::byte> bytes;
  if (total > 0) bytes = image(0, std::min(part, total));
  for (size_t begin = 0; begin < total;) {
    const size_t end = begin + bytes.size();
    auto next = std::async(std::launch::async, [&] {
      sums.add(bytes, [&](size_t extent, uint64_t sum) { file_.extents[extent].checksum = sum; });
      return end < total ? image(end, std::min(end + part, total)) : std::span<const std::byte>();
    });
    write_part(direct, bytes, file_.bytes + begin);
    bytes = next.get();
    begin = end;
  }
  file_.bytes += total;
}

// Whole pages past the cache, the rest the ordinary way.
void StateFileWriter::write_part(File& direct, std::span<const std::byte> bytes, size_t at) {
  const bool aligned =
      reinterpret_cast<uintptr_t>(bytes.data()) % kDirectAlign == 0 && at % kDirectAlign == 0;
  const size_t bulk = aligned ? bytes.size() / kDirectAlign * kDirectAlign : 0;
  if (bulk > 0) direct.write_at(bytes.data(), bulk, at);
  if (bulk < bytes.size()) replacing_.file().write_at(bytes.data() + bulk, bytes.size() - bulk, at + bulk);
}

StateFile StateFileWriter::commit() {
  replacing_.commit();
  return std::move(file_);
}

void leave_note(const Path& folder, int rank, int ranks, const std::vector<StateFile>& files) {
  replace_file(folder / note_name(rank, ranks), format_state_files(files));
}

std::optional<std::vector<StateFile>> read_note(const Path& folder, int rank, int ranks) {
  const Path note = folder / note_name(rank, ranks);
  if (!file_exists(note)) return std::nullopt;
  return parse_state_files(read_file(note, kMaxManifestBytes), note.string());
}

void commit_manifest(const Path& folder, const Manifest& manifest) {
  const std::string text = format_manifest(manifest);
  require(text.size() <= kMaxManifestBytes, ErrorKind::usage,
          "[checkpoint] {}: the manifest takes {} bytes, expected at most {}", folder.string(), text.size(),
          kMaxManifestBytes);
  replace_file(folder / kManifestName, text);
  sync_folder(folder.parent_path());
  std::error_code ignored;  // leftover notes do no harm
  for (int rank = 0; rank < manifest.ranks; ++rank) {
    const Path note = folder / note_name(rank, manifest.ranks);
    const DiskOperation waiting("removing", note);
    std::filesystem::remove(note, ignored);
  }
}

}  // namespace zeno::checkpoint
