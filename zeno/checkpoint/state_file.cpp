#include "zeno/checkpoint/state_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>

#include "zeno/base/error.h"
#include "zeno/checkpoint/safetensors_writer.h"

namespace zeno::checkpoint {
namespace {

std::string note_name(int rank, int world) { return fmt::format("rank-{:04}-of-{:04}.json", rank, world); }

std::vector<TensorSpec> specs_of(const Manifest& manifest, const std::vector<Extent>& extents) {
  std::vector<TensorSpec> specs;
  for (const Extent& extent : extents)
    specs.push_back(
        {extent_name(manifest, extent), manifest.states.at(size_t(extent.state)).dtype, {extent.count}});
  return specs;
}

}  // namespace

std::string state_file_name(int rank, int world) {
  return fmt::format("rank-{:04}-of-{:04}.safetensors", rank, world);
}

StateFileWriter::StateFileWriter(const Path& folder, const Manifest& manifest, int rank,
                                 std::vector<Extent> extents)
    : folder_(folder),
      rank_(rank),
      world_(manifest.world),
      file_{state_file_name(rank, manifest.world), 0, 0, std::move(extents)},
      replacing_(folder / file_.name) {
  const std::vector<TensorSpec> specs = specs_of(manifest, file_.extents);
  const std::string header = safetensors_header(specs, {}, kDirectAlign);
  replacing_.file().write_at(header.data(), header.size(), 0);
  file_.bytes = header.size();
  file_.header = checksum_of(std::as_bytes(std::span(header)));
  for (const TensorSpec& spec : specs) sizes_.push_back(spec.bytes());
}

void StateFileWriter::write(std::span<const std::byte> image, const std::function<void(size_t)>& ready) {
  constexpr size_t kPiece = size_t(8) << 20;
  const auto wait_for = [&](size_t bytes) {
    if (ready) ready(bytes);
  };
  size_t total = 0;
  for (size_t size : sizes_) total += size;
  ensure(total == image.size(), "[checkpoint] {}: got {} bytes, expected {}", replacing_.path().string(),
         image.size(), total);
  // Checksums beside the writes, which leave the processor alone.
  std::future<void> sums = std::async(std::launch::async, [&] {
    for (size_t i = 0, begin = 0; i < sizes_.size(); begin += sizes_[i++]) {
      wait_for(begin + sizes_[i]);
      file_.extents[i].checksum = checksum_of(image.subspan(begin, sizes_[i]));
    }
  });
  const bool aligned = reinterpret_cast<uintptr_t>(image.data()) % kDirectAlign == 0;
  const size_t bulk = aligned ? image.size() / kDirectAlign * kDirectAlign : 0;
  File direct = File::open_direct_to_write(replacing_.path());
  for (size_t begin = 0; begin < image.size();) {
    const size_t end = begin < bulk ? std::min(begin + kPiece, bulk) : image.size();
    wait_for(end);
    File& file = begin < bulk ? direct : replacing_.file();
    file.write_at(image.data() + begin, end - begin, file_.bytes + begin);
    begin = end;
  }
  sums.get();
  file_.bytes += image.size();
}

void StateFileWriter::commit() {
  replacing_.commit();
  replace_file(folder_ / note_name(rank_, world_), format_state_file(file_));
}

std::optional<StateFile> read_note(const Path& folder, int rank, int world) {
  const Path note = folder / note_name(rank, world);
  if (!file_exists(note)) return std::nullopt;
  return parse_state_file(read_file(note), note.string());
}

void commit_manifest(const Path& folder, const Manifest& manifest) {
  replace_file(folder / kManifestName, format_manifest(manifest));
  sync_folder(folder.parent_path());
  std::error_code ignored;  // notes that stay harm nobody
  for (int rank = 0; rank < manifest.world; ++rank)
    std::filesystem::remove(folder / note_name(rank, manifest.world), ignored);
}

}  // namespace zeno::checkpoint
