// A copy of one rank's masters and moments in host memory, so that they can be written to disk while training
// goes on. Every element of the trainable state is in the snapshot of exactly one rank, whatever the
// sharding: where all ranks keep everything, each takes its part.
//
// Owns its memory, booked as host staging. copy() is async; whoever changes the state next must wait for it.
// Thread rule: one thread, except wait() and bytes(), which any thread may call after copy().
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "zeno/device/buffer.h"
#include "zeno/zero/state_store.h"

namespace zeno::zero {

class Snapshot {
 public:
  // A run of elements of one state of a parameter.
  struct Piece {
    State state = State::master;
    int param = 0;
    int64_t begin = 0, count = 0;  // elements of the parameter
  };

  // Pieces of at most `most` elements, which end at multiples of `most` in their parameter.
  Snapshot(const UnitTable& units, const StateStore& store, int rank, int64_t most);

  const std::vector<Piece>& pieces() const { return pieces_; }
  size_t size() const { return size_; }

  // With room for `copies` more, which somebody else keeps.
  void book(Ledger& ledger, int copies = 0) const;
  void allocate(Ledger& ledger, Device device);
  // After everything queued on `stream`.
  void copy(StreamRef stream);
  // Returns when the first `bytes` are copied: whoever writes them away can follow the copy.
  void wait(size_t bytes) const;
  // All pieces, one behind the other.
  std::span<const std::byte> bytes() const { return {buffer_.data(), size_}; }

 private:
  struct Place {
    int group = 0;
    Partition::Piece piece;
    size_t offset = 0, bytes = 0;  // in the buffer
  };
  void add(State state, int param, int rank, int64_t most);

  const UnitTable& units_;
  const StateStore& store_;
  std::vector<Piece> pieces_;
  std::vector<Place> places_;
  size_t size_ = 0;
  Buffer buffer_;
  struct Part {
    size_t end = 0;  // bytes
    Event copied;
  };
  std::vector<Part> parts_;
};

}  // namespace zeno::zero
