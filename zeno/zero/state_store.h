// The training state one rank keeps between steps: parameters in compute precision, gradients, fp32 masters
// and moments, each whole or as a shard per group, in one buffer per purpose. Where masters and parameters
// have the same type they are the same: no second copy. With one rank, shards are the full buffers. Frozen
// groups may be kept in NF4: then parameters are Nf4Cells, and an element's place is that of its cell.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "zeno/device/buffer.h"
#include "zeno/device/stream.h"
#include "zeno/zero/units.h"

namespace zeno::zero {

enum class State { param, grad, master, first_moment, second_moment };
inline constexpr int kStates = 5;

class StateStore {
 public:
  StateStore(const UnitTable& units, const Policy& policy, int rank);

  // Books what allocate() will take.
  void book(Ledger& ledger) const;
  // Memory starts as zeros. Collective when `allocator` is.
  void allocate(Ledger& ledger, const Allocator& allocator, StreamRef stream);

  // Sets everything to zero and waits for it.
  void clear(StreamRef stream) const;
  template <class Body>
  void for_buffers(const Body& body) const {
    for (const Buffer& buffer : buffers_) body(buffer);
  }

  // Is the state kept whole (element i of the group at index i), or as this rank's shard?
  bool whole(State state, int group) const { return slot(state, group).whole; }
  bool exists(State state, int group) const { return slot(state, group).bytes > 0; }
  // Of an element; of NF4 parameters, what they decode to.
  DType dtype(State state) const;
  // First element of what this rank keeps of the group.
  std::byte* data(State state, int group) const;
  // Where the first element of one of this rank's pieces is kept.
  std::byte* at(State state, int group, const Partition::Piece& piece) const;

  // The pieces this rank updates: its shard, or everything when the optimizer is replicated.
  const std::vector<Partition::Piece>& owned(int group) const { return owned_[group]; }
  // Bytes of parameters + gradients + masters + moments, padding included.
  size_t model_state_bytes() const;

 private:
  struct Slot {
    size_t offset = 0, bytes = 0;
    bool whole = false;
  };
  const Slot& slot(State state, int group) const { return slots_[int(state)][group]; }
  size_t bytes_of(State state, int group, int64_t elements) const;
  void add_slot(State state, int group, bool whole);

  const UnitTable& units_;
  const Policy& policy_;
  std::array<std::vector<Slot>, kStates> slots_;
  std::array<size_t, kStates> bytes_{};
  std::array<Buffer, kStates> buffers_;
  std::vector<std::vector<Partition::Piece>> owned_;
};

}  // namespace zeno::zero
