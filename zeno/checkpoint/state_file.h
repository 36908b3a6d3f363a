// One rank's part of a checkpoint: a safetensors file with this rank's ranges of state, or one that already
// had them on disk and only gets its header, or both; and a note that says what was written. The note is what
// the rank that writes the manifest waits for.
//
// Blocking. A writer belongs to one thread; ranks write at the same time into the same folder.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "zeno/base/file.h"
#include "zeno/checkpoint/manifest.h"

namespace zeno::checkpoint {

class StateFileWriter {
 public:
  // `extents` are those of rank `rank` of manifest.ranks; the lists of states and tensors are taken from
  // `manifest`.
  StateFileWriter(const Path& folder, const Manifest& manifest, int rank, std::vector<Extent> extents);

  const std::vector<Extent>& extents() const { return file_.extents; }
  // Bytes [begin, end) of all extents, concatenated. Asked for in order, by one thread at a time; they must
  // stay until the call after the next.
  using Image = std::function<std::span<const std::byte>(size_t begin, size_t end)>;
  // Goes past the page cache, at the disk's own pace and without a copy, where the image's parts begin at
  // multiples of kDirectAlign. Never requests more than `part` bytes at once, a multiple of kDirectAlign.
  void write(const Image& image, size_t part);
  // The file is on the disk.
  StateFile commit();

 private:
  StateFile file_;
  void write_part(File& direct, std::span<const std::byte> bytes, size_t at);

  std::vector<size_t> sizes_;  // of the extents, bytes
  ReplacingFile replacing_;
};

// Name of a rank's file: "rank-0002-of-0004.safetensors", and of one that was its swap file.
std::string state_file_name(int rank, int ranks);
std::string swap_file_name(int rank, int ranks);

// The beginning of a file whose extents follow in this order, exactly `bytes` long; empty if that is too
// short.
std::string swap_header(const Manifest& manifest, const std::vector<Extent>& extents, size_t bytes);
// Makes a file of the folder that has all but its header a part of the checkpoint: it is on the disk then.
StateFile seal_swap_file(const Path& path, const std::string& header, std::vector<Extent> extents);

// Says that a rank has put these files on the disk.
void leave_note(const Path& folder, int rank, int ranks, const std::vector<StateFile>& files);
// What a rank has noted; empty while it has not finished.
std::optional<std::vector<StateFile>> read_note(const Path& folder, int rank, int ranks);

// Puts a complete checkpoint into the world: manifest written last, notes removed.
void commit_manifest(const Path& folder, const Manifest& manifest);
inline constexpr std::string_view kManifestName = "manifest.json";

}  // namespace zeno::checkpoint
