// One rank's part of a checkpoint: a safetensors file with the stretches of state that this rank keeps, and a
// note beside it that says what was written. The note is what the rank that writes the manifest waits for.
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
  // `extents` are those of rank `rank` of manifest.world; the lists of states and tensors are taken from
  // `manifest`.
  StateFileWriter(const Path& folder, const Manifest& manifest, int rank, std::vector<Extent> extents);

  const std::vector<Extent>& extents() const { return file_.extents; }
  // All extents, one behind the other. Goes past the page cache, at the disk's own pace and without a copy,
  // when `image` begins at a multiple of kDirectAlign.
  // ready(n) returns when the first n bytes are there; it is called from two threads.
  void write(std::span<const std::byte> image, const std::function<void(size_t)>& ready = {});
  // The file is on the disk, then its note.
  void commit();

 private:
  Path folder_;
  int rank_, world_;
  StateFile file_;
  std::vector<size_t> sizes_;  // of the extents, bytes
  ReplacingFile replacing_;
};

// Name of a rank's file: "rank-0002-of-0004.safetensors".
std::string state_file_name(int rank, int world);

// What a rank has noted; empty while it has not finished.
std::optional<StateFile> read_note(const Path& folder, int rank, int world);

// Puts a complete checkpoint into the world: manifest written last, notes removed.
void commit_manifest(const Path& folder, const Manifest& manifest);
inline constexpr std::string_view kManifestName = "manifest.json";

}  // namespace zeno::checkpoint
