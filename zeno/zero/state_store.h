// The training state that one rank keeps between steps: parameters in compute precision, gradients, fp32
// masters and moments, each whole or as a shard per group. Masters and parameters that have the same dtype
// and stay where they are used are one copy. Masters kept beside bf16 parameters are split: only the bits
// that the parameters lack are stored. With one rank, shards are the full buffers. Frozen groups may be kept
// in NF4: then parameters are Nf4Cells, and the place of an element is that of its cell.
//
// Every state has a home: device memory, host memory, or an extent of a file (units.h says which). The step
// program moves states with a home on disk or on the host of a GPU; get() and put() reach any home and block.
// Thread rule: calls that are not const from one thread, while no step is in progress. Exceptions: several
// threads may read extents while one writes others; several threads may put() to memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "zeno/device/buffer.h"
#include "zeno/device/disk_store.h"
#include "zeno/device/stream.h"
#include "zeno/zero/units.h"

namespace zeno::zero {

enum class State { param, grad, master, first_moment, second_moment };
inline constexpr int kStates = 5;
inline constexpr std::array kOptimizerStates{State::master, State::first_moment, State::second_moment};

class StateStore {
 public:
  StateStore(const UnitTable& units, const Policy& policy, int rank);

  // Books what allocate() will take.
  void book(Ledger& ledger) const;
  struct Allocators {
    Allocator device, host;  // ranks can read each other's blocks
  };
  // For a file that can be given away: where the parts of each chunk's extent that have checksums of their
  // own begin, by chunk, and room for a header before all extents. Empty: it is not given away.
  struct DiskLayout {
    size_t head = 0;
    std::vector<std::vector<size_t>> cuts;
  };
  // Collective if an allocator is. `disk` says where homes on disk are. Values are undefined before clear().
  void allocate(Ledger& ledger, const Allocators& allocators, const DiskOptions& disk,
                const DiskLayout& layout);
  // Registers host memory that extents will be read to and written from, as long as the store lives.
  void register_memory(std::span<std::byte> memory);

  // Sets everything to zero and waits for it.
  void clear(StreamRef stream);
  // Calls body with each buffer in device memory.
  template <class Body>
  void for_buffers(const Body& body) const {
    for (const Buffer& buffer : device_) body(buffer);
  }

  // The axes that the state is sharded over.
  comm::Axes axes(State state, int group) const { return slot(state, group).axes; }
  bool exists(State state, int group) const { return slot(state, group).exists; }
  // Whether masters and parameters of the group are the same memory.
  bool aliased(int group) const;
  // Whether only the bits of masters that parameters lack are stored.
  bool split(int group) const { return units_.groups[size_t(group)].split; }
  // The dtype of an element in get() and put(). For NF4 parameters, the one they decode to; u8: moments in
  // cells.
  DType dtype(State state) const;
  // The dtype in memory; i16: split masters (master_rest.h).
  DType kept_as(State state, int group) const;
  // The dtype in checkpoints.
  DType value_dtype(State state) const { return dtype(state) == DType::u8 ? DType::f32 : dtype(state); }
  // The first element that this rank keeps of the group's parameters or gradients, in memory.
  std::byte* data(State state, int group) const;
  // The first element of one of this rank's pieces, which must be in memory. A piece of optimizer states must
  // lie within one chunk.
  std::byte* at(State state, int group, const Partition::Piece& piece) const;

  // Copies between any home and host memory. Split masters are put together with their parameters. Blocking.
  // Call flush() before the next step: it writes what was put to disk, and drops cached extents that the step
  // may change.
  void get(State state, int group, const Partition::Piece& piece, std::byte* out, StreamRef stream);
  void put(State state, int group, const Partition::Piece& piece, const std::byte* from, StreamRef stream);
  void flush();
  // Whether any state is kept on disk.
  bool uses_disk() const {
    return std::ranges::any_of(written_, [](const auto& extents) { return !extents.empty(); });
  }
  // Cuts a piece of optimizer states where one extent on disk ends and the next begins. If all states of one
  // part are put before those of the next, each extent is written once. Pieces in memory stay whole, and so
  // do pieces of more than two extents, which are small.
  std::vector<Partition::Piece> disk_pieces(int group, const Partition::Piece& piece) const;

  // Where a piece is kept, as contiguous ranges.
  struct Stretch {
    Tier tier = Tier::device;
    std::byte* data = nullptr;  // in memory; null: on disk
    size_t bytes = 0;
    int chunk = 0;
    size_t offset = 0;  // on disk: within the chunk's extent
  };
  std::vector<Stretch> stretches(State state, int group, const Partition::Piece& piece) const;

  // The block of a chunk: its states that move together, one after the other. Whether a state is in it, where
  // it begins, and the size of the block.
  bool in_block(State state, int chunk) const;
  size_t block_offset(State state, int chunk) const;
  size_t block_bytes(int chunk) const;
  // A chunk's state in memory.
  std::byte* home(State state, int chunk) const;
  size_t bytes_of(State state, int group, int64_t elements) const;
  // Extents on disk: a chunk's block of states, or its parameters. Their sizes are multiples of kDirectAlign.
  enum class OnDisk { states, params };
  static constexpr std::array kOnDisk{OnDisk::states, OnDisk::params};
  size_t extent_bytes(OnDisk what, int chunk) const;
  size_t largest_extent(OnDisk what) const;
  void read_extent(OnDisk what, int chunk, std::byte* to) const;
  void write_extent(OnDisk what, int chunk, const std::byte* from) const;
  bool has_extent(OnDisk what, int chunk) const { return extent_of(what, chunk) != kNone; }
  // For optimizer states: how many elements of the piece, from its first on, are in the same chunk.
  int64_t count_in_chunk(int group, const Partition::Piece& piece) const;
  // Gives away the file with the extents of states, to be moved into this folder, if possible (disk_store.h).
  // No thread may be writing extents.
  std::optional<DiskStore::Given> give_states(const Path& folder) const;

  // The pieces this rank updates: its shard of the optimizer states.
  const std::vector<Partition::Piece>& owned(int group) const { return owned_[size_t(group)]; }
  // Bytes of parameters + gradients + masters + moments of all tiers, padding included.
  size_t model_state_bytes() const;

 private:
  struct Slot {
    size_t offset = 0;  // for parameters and gradients
    bool exists = false;
    comm::Axes axes;
  };
  // One extent of each kind is cached in memory, so that small writes to it become one large one.
  struct Cached {
    int chunk = -1;
    bool dirty = false;
    Buffer buffer;
  };
  const Slot& slot(State state, int group) const { return slots_[size_t(state)][size_t(group)]; }
  size_t& offset_of(State state, int chunk) { return offsets_[size_t(state)][size_t(chunk)]; }
  void get_kept(State state, int group, const Partition::Piece& piece, std::byte* out, StreamRef stream);
  void put_kept(State state, int group, const Partition::Piece& piece, const std::byte* from,
                StreamRef stream);
  void place_group(int group);
  void place_chunk(int chunk);
  // The bytes of a state in a chunk's block, with padding; 0: it does not move with the chunk.
  size_t part_bytes(State state, int chunk) const;
  size_t take(Tier tier, State state, size_t bytes);
  int chunk_of(int group, int64_t index) const;  // `index` in what the rank keeps
  // The index of a piece's first element in what the rank keeps of the state.
  int64_t index(State state, int group, const Partition::Piece& piece) const;
  std::vector<std::pair<int, Partition::Piece>> by_chunk(State state, int group,
                                                         const Partition::Piece& piece) const;
  std::byte* cached(OnDisk what, int chunk);
  void flush(OnDisk what);
  size_t extent_of(OnDisk what, int chunk) const { return extents_[size_t(what)][size_t(chunk)]; }
  size_t& extent_of(OnDisk what, int chunk) { return extents_[size_t(what)][size_t(chunk)]; }
  void create_disk(OnDisk what, DiskOptions options, const DiskLayout& layout);
  DiskStore& disk(OnDisk what) const { return *disks_[size_t(what)]; }
  char& written(OnDisk what, int chunk) const { return written_[size_t(what)][extent_of(what, chunk)]; }

  const UnitTable& units_;
  const Policy& policy_;
  const int rank_;
  std::array<std::vector<Slot>, kStates> slots_;      // by group
  std::array<std::vector<size_t>, kStates> offsets_;  // by chunk: of optimizer states
  static constexpr size_t kNone = size_t(-1);
  std::array<std::vector<size_t>, 2> extents_;        // by what and chunk
  mutable std::array<std::vector<char>, 2> written_;  // by what and extent; those never written hold zeros
  std::array<std::array<size_t, kStates>, kTiers.size()> bytes_{};  // by tier and state
  std::array<Buffer, kStates> device_, host_;
  std::array<std::unique_ptr<DiskStore>, 2> disks_;  // by what
  mutable std::mutex reading_;                       // a disk has one reader at a time
  std::array<Cached, 2> cached_;                     // by what
  std::vector<std::vector<Partition::Piece>> owned_;
};

}  // namespace zeno::zero
