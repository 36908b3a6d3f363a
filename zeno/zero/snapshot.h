// One rank's masters and moments after a step, as one image of bytes that can be written to a file. Every
// element of the trainable state is in the snapshot of exactly one rank, whatever the sharding: where all
// ranks keep everything, each takes its part.
//
// The image is a copy in host memory, taken at once, so that training can go on. Where states are offloaded,
// or moments are kept in 8 bits, the image is instead streamed: read from the states piece by piece as it is
// written, and the states must not change until release(). Floats on disk of which only one rank has a copy
// need not be read: the file itself can be given away, and training goes on in another. Owns its memory,
// which is booked as host staging. copy() is async; the next change of the state must wait for it. Thread
// rule: one thread, except that one other thread may call part(), give_file() and release() after copy();
// several threads may call part() of a copied image.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "zeno/device/buffer.h"
#include "zeno/zero/state_store.h"

namespace zeno::zero {

class Snapshot {
 public:
  enum class Mode { copied, streamed };
  // Consecutive elements of one state of a parameter.
  struct Piece {
    State state = State::master;
    int param = 0;
    int64_t begin = 0, count = 0;  // elements of the parameter
  };

  // Pieces have at most `most` elements and end at multiples of `most` in their parameter.
  Snapshot(const UnitTable& units, const StateStore& store, int rank, int64_t most, Mode mode);

  // In the order of the image; pieces in the file that can be given away come last.
  const std::vector<Piece>& pieces() const { return pieces_; }
  size_t pieces_in_memory() const { return in_memory_; }
  size_t size() const { return size_; }  // of the image

  // The contents of that file from layout().head on: a piece (its index) or padding (-1).
  struct FilePart {
    int piece = -1;
    size_t bytes = 0;
  };
  const std::vector<FilePart>& file_parts() const { return file_parts_; }
  const StateStore::DiskLayout& layout() const { return layout_; }
  // Gives that file away, to be moved into this folder, with the checksum of every part; returns nothing if
  // that is not possible. Blocks until the state is on the disk.
  std::optional<DiskStore::Given> give_file(const Path& folder);

  // Books the memory, with room for `copies` further copies that the caller keeps.
  void book(Ledger& ledger, int copies = 0) const;
  void allocate(Ledger& ledger, Device device);
  // Takes the state after everything queued on `stream`, which must stay valid until release().
  void copy(StreamRef stream);
  // Blocks while a streamed image is being read. The host waits, not a stream: reads from a GPU are queued
  // later, and behind such a wait they would wait for themselves.
  void await_release();
  // Bytes [begin, end) of the image, at most kPart of them, to be called in ascending order. Blocks until
  // they are there; they stay valid until the call after the next. Aligned to kDirectAlign if `begin` is.
  static constexpr size_t kPart = size_t(8) << 20;
  std::span<const std::byte> part(size_t begin, size_t end);
  // The image is no longer needed. May be called twice.
  void release();

 private:
  struct Place {
    int group = 0;
    Partition::Piece piece;
    size_t offset = 0, bytes = 0;  // in the image
  };
  void add(int param, int rank, int64_t most, bool on_file);
  bool in_file(State state, int group, const Partition::Piece& piece) const;
  void lay_out_file(int64_t most);
  size_t room() const;
  size_t place_at(size_t offset) const;  // of the image
  size_t staging_bytes() const;
  void read(size_t place, size_t skip, std::span<std::byte> out);
  void read_cells(State state, int group, const Partition::Piece& piece, std::span<std::byte> out);
  void read_bytes(State state, int group, const Partition::Piece& piece, std::byte* to);
  bool split(size_t place) const {
    return pieces_[place].state == State::master && store_.split(places_[place].group);
  }
  void read_split(int group, const Partition::Piece& piece, std::byte* to);
  void join_copied(size_t begin, size_t end);
  void await_copied(size_t end);
  const std::byte* extent(int chunk);

  const UnitTable& units_;
  const StateStore& store_;
  Mode mode_;
  std::vector<Piece> pieces_;
  std::vector<Place> places_;
  size_t size_ = 0, in_memory_ = 0;
  std::vector<FilePart> file_parts_;
  StateStore::DiskLayout layout_;
  Buffer buffer_;  // the image, or two parts of it and an extent of the disk
  struct Copied {
    size_t end = 0;  // bytes
    Event done;
  };
  std::vector<Copied> copied_;
  std::mutex joining_;
  std::vector<char> joined_;         // copied, by place: whether split masters have been joined
  Event begun_;                      // streamed: from here on the state is that of the snapshot
  int extent_chunk_ = -1;            // the chunk whose states are in memory
  std::optional<StreamRef> stream_;  // streamed: for states on a device
  size_t turn_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool in_use_ = false;  // streamed: between copy() and release()
};

}  // namespace zeno::zero
