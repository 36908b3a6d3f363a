#include "zeno/checkpoint/state_file.h"

#include <fmt/format.h>

namespace zeno::checkpoint {
namespace {

std::string note_name(int rank, int world) { return fmt::format("rank-{:04}-of-{:04}.json", rank, world); }
std::string failure_name(int rank, int world) {
  return fmt::format("rank-{:04}-of-{:04}.failed", rank, world);
}

std::vector<std::string> names_of(const Manifest& manifest, const std::vector<Extent>& extents) {
  std::vector<std::string> names;
  for (const Extent& extent : extents) names.push_back(extent_name(manifest, extent));
  return names;
}

std::vector<TensorSpec> specs_of(const Manifest& manifest, const std::vector<Extent>& extents,
                                 const std::vector<std::string>& names) {
  std::vector<TensorSpec> specs;
  for (size_t i = 0; i < extents.size(); ++i) {
    const Extent& extent = extents[i];
    specs.push_back({names[i], manifest.states.at(size_t(extent.state)).dtype, {extent.count}});
  }
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
      names_(names_of(manifest, extents)),
      file_{state_file_name(rank, manifest.world), 0, std::move(extents)},
      writer_(folder / file_.name, specs_of(manifest, file_.extents, names_)) {}

void StateFileWriter::write(size_t index, std::span<const std::byte> bytes) {
  file_.extents.at(index).checksum = checksum_of(bytes);
  writer_.write(names_.at(index), 0, bytes);
}

void StateFileWriter::commit() {
  writer_.commit();
  file_.bytes = File::open(folder_ / file_.name).size();
  replace_file(folder_ / note_name(rank_, world_), format_state_file(file_));
}

std::optional<StateFile> read_note(const Path& folder, int rank, int world) {
  const Path failed = folder / failure_name(rank, world);
  if (file_exists(failed))
    fail(ErrorKind::io, "[checkpoint] rank {} could not write its part: {}", rank, read_file(failed));
  const Path note = folder / note_name(rank, world);
  if (!file_exists(note)) return std::nullopt;
  return parse_state_file(read_file(note), note.string());
}

void write_failure_note(const Path& folder, int rank, int world, const std::string& reason) {
  replace_file(folder / failure_name(rank, world), reason);
}

void commit_manifest(const Path& folder, const Manifest& manifest) {
  replace_file(folder / kManifestName, format_manifest(manifest));
  sync_folder(folder.parent_path());
  for (int rank = 0; rank < manifest.world; ++rank) remove_file(folder / note_name(rank, manifest.world));
}

}  // namespace zeno::checkpoint
