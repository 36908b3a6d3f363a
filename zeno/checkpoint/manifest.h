// What a checkpoint holds: the one file that makes a folder of rank files a checkpoint, written last
// (docs/checkpoint_format.md). Nothing in it depends on how the run was sharded: a range of state is named by
// state, parameter and position, so any number of ranks can read what any other number has written.
//
// Plain values and pure functions; no thread rule.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/base/dtype.h"

namespace zeno::checkpoint {

// A state with one value per element of a parameter: "master", "first_moment", "second_moment".
struct StateKind {
  std::string name;
  DType dtype = DType::f32;
  bool operator==(const StateKind&) const = default;
};

struct StateTensor {
  std::string name;  // of the parameter
  int64_t rows = 0, cols = 0;
  int64_t count() const { return rows * cols; }
  bool operator==(const StateTensor&) const = default;
};

// Elements [begin, begin + count) of one state of one parameter, kept in one file. Or filling: then `begin`
// is the position in the file after the header and `count` the number of bytes.
struct Extent {
  static constexpr int kFilling = -1;
  int state = 0, tensor = 0;  // indices into the manifest's lists; both kFilling
  int64_t begin = 0, count = 0;
  uint64_t checksum = 0;  // XXH3 of its bytes
  bool fills() const { return state == kFilling; }
  bool operator==(const Extent&) const = default;
};

inline constexpr int64_t kManifestVersion = 1;

// Largest manifest, and note of a rank: far above any real one.
inline constexpr uint64_t kMaxManifestBytes = uint64_t(256) << 20;

// Longest extent: what is read and checked at once.
inline constexpr int64_t kExtentElements = int64_t(1) << 20;

struct StateFile {
  std::string name;
  uint64_t bytes = 0;
  uint64_t header = 0;  // XXH3 of what comes before the extents
  std::vector<Extent> extents;
  bool operator==(const StateFile&) const = default;
};

struct Manifest {
  int64_t step = 0;  // optimizer steps done
  int ranks = 1;     // that wrote
  std::vector<StateKind> states;
  std::vector<StateTensor> tensors;
  std::vector<StateFile> files;
  std::string run = "{}";  // JSON object: what the trainer needs to resume
  bool operator==(const Manifest&) const = default;
};

// Text of a manifest and back. Damage of any byte, extents that overlap or leave elements out are an
// Error(data) that starts with `where`; a newer version is a NewerVersion (zeno/base/newer_version.h).
std::string format_manifest(const Manifest& manifest);
Manifest parse_manifest(std::string_view text, std::string_view where);
// The version in a manifest that begins so, the largest number for any above that; 0: none can be found.
int64_t stated_version(std::string_view beginning);
// Is a manifest, all of it, of a newer version than this Zeno reads? One that begins with a seal must have
// the right one: a flipped bit makes no newer version.
bool is_newer_manifest(std::string_view text);

// What one rank has written, for the one that writes the manifest.
std::string format_state_files(const std::vector<StateFile>& files);
std::vector<StateFile> parse_state_files(std::string_view text, std::string_view where);

uint64_t checksum_of(std::span<const std::byte> bytes);
// The same of bytes that come in parts.
class RunningChecksum {
 public:
  RunningChecksum();
  void add(std::span<const std::byte> bytes);
  uint64_t value() const;

 private:
  struct Free {
    void operator()(void* state) const;
  };
  std::unique_ptr<void, Free> state_;
};
// Name of an extent in its file: "master/blocks.0.mlp.up.weight@1048576".
std::string extent_name(const Manifest& manifest, const Extent& extent);
DType extent_dtype(const Manifest& manifest, const Extent& extent);

}  // namespace zeno::checkpoint
