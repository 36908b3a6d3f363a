// A checkpoint to read from: any range of any state, whichever run wrote it. Extents are checked against
// their checksums as they are read, so wrong bytes never reach a run.
//
// Owns the open files. read() blocks; several threads may call it at once.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/base/file.h"
#include "zeno/checkpoint/manifest.h"
#include "zeno/checkpoint/page_pool.h"
#include "zeno/checkpoint/safetensors.h"

namespace zeno::checkpoint {

// Which files of a checkpoint must exist: a host may have only those that its ranks need.
enum class Files { all, present };

// Elements [begin, begin + count) of one state of a tensor.
struct StateStretch {
  std::string_view state, tensor;
  int64_t begin = 0, count = 0;
};

struct ReadOptions {
  int threads = 16;       // each reads, checks and hands over 1 MiB at once; in order: an extent
  bool in_order = false;  // from one thread at a time, as the stretches are listed
};

// How many threads read a checkpoint on these cores.
int reading_threads(int cores);

class Checkpoint {
 public:
  // Reads the manifest and the headers of all files and compares them. Error(data) for damage, naming file
  // and tensor; a checkpoint of a newer Zeno is a NewerVersion.
  static Checkpoint open(const Path& folder, Files files = Files::all);

  const Path& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  bool has(std::string_view state) const;
  const StateTensor* find(std::string_view tensor) const;
  // Elements [begin, begin + out.size()) of one state of a tensor. Damage is an Error(data) that names the
  // file and the extent.
  void read(std::string_view state, std::string_view tensor, int64_t begin, std::span<float> out) const;

  // Gets elements from `begin` on of a stretch, by its place in the list, as they are kept: in `dtype`, at
  // any address. They are gone after the call, and may be overwritten in it.
  using Taker = std::function<void(size_t stretch, int64_t begin, DType dtype, std::span<std::byte> values)>;
  // Many stretches, which do not overlap, from several threads at once. What follows in the list and in a
  // file is read together. A large extent comes in slices and is compared with its checksum when the last of
  // them is read: after an Error nothing that was taken may be used.
  void read(std::span<const StateStretch> stretches, const Taker& take, const ReadOptions& options) const;

 private:
  // Where an extent lies, sorted by begin.
  struct Place {
    int64_t begin = 0, count = 0;
    size_t file = 0, extent = 0;
    uint64_t offset = 0, bytes = 0;  // in the file
  };
  // The part of a range that one extent holds.
  struct Part {
    size_t stretch = 0;
    const Place* place = nullptr;
    int64_t begin = 0, count = 0;
    DType dtype = DType::f32;
  };
  void index_files(Files which);
  void add_parts(const StateStretch& stretch, size_t index, std::vector<Part>& parts) const;
  static std::vector<std::span<const Part>> batches(std::span<const Part> parts);
  void read_batch(std::span<const Part> batch, std::span<std::byte> pages, const Taker& take) const;

  Path folder_;
  Manifest manifest_;
  std::vector<std::optional<File>> files_;  // read bypassing the page cache; empty: not here
  std::unique_ptr<PagePool> pool_;
  std::map<std::pair<int, int>, std::vector<Place>> places_;  // by state and tensor
  std::map<std::string, int, std::less<>> state_index_, tensor_index_;
};

// What the folder's manifest says; Error(data) when there is none or it is damaged, NewerVersion.
Manifest read_manifest(const Path& folder);

// Is there a manifest of a newer Zeno? Cheap: reads only its beginning.
bool is_newer(const Path& folder);

// Reads every byte of a checkpoint; empty if all are correct. Otherwise one line for each damaged extent
// (file, extent, tensor, got, expected) and for each file that cannot be used at all, with the tensors in it.
std::vector<std::string> find_damage(const Path& folder);

// The name of the checkpoint of a step, and back; empty for other names.
std::string checkpoint_name(int64_t step);
std::optional<int64_t> step_of(std::string_view name);

// Checkpoints below `folder` by step, newest first; a folder without a manifest does not count.
std::vector<Path> list_checkpoints(const Path& folder);
// The newest one whose manifest and headers are intact; tries older ones in turn, with a warning for each
// that is damaged. Empty if there is none. Never skips one of a newer Zeno: NewerVersion.
std::optional<Checkpoint> open_latest(const Path& folder);

// Removes a checkpoint or its remains. The manifest goes first, so a half-removed checkpoint counts as
// absent. Throws NewerVersion for one of a newer Zeno.
void remove_checkpoint(const Path& folder);

struct Retention {
  int64_t keep_last = 2;   // number of newest checkpoints to keep; 0: all
  int64_t keep_every = 0;  // also keep those whose step is a multiple; 0: none
  int64_t keep_best = -1;  // also keep that of this step; -1: none
};
// Removes checkpoints that are not to be kept, and the remains of unfinished saves before `newest`. Never
// removes `newest` itself, the only complete checkpoint, or one that a newer Zeno wrote.
void apply_retention(const Path& folder, const Retention& retention, int64_t newest);

}  // namespace zeno::checkpoint
