// How a flat buffer of elements is cut over ranks. Pure arithmetic; total: it pads, never declines.
//
// The buffer is a row of chunks (the pieces a collective moves at once); each chunk is cut evenly over the
// ranks, and a rank's shard is the concatenation of its pieces. So a chunk is one contiguous reduce-scatter
// or all-gather, whatever the bucket size. Only the end of the last chunk is padding. Every cut falls on a
// multiple of `align`.
#pragma once

#include <cstdint>
#include <vector>

#include "zeno/device/flat_layout.h"

namespace zeno::zero {

class Partition {
 public:
  struct Chunk {
    int64_t begin = 0;  // in the full buffer
    int64_t piece = 0;  // elements per rank; the chunk has world · piece
    int64_t shard = 0;  // where the piece starts in every rank's shard
  };
  // A run of elements that is contiguous in the full buffer and in the shard.
  struct Piece {
    int64_t full = 0, shard = 0, count = 0;
  };

  Partition() = default;
  // `chunk` is the largest number of elements of a chunk (rounded up to what `world` needs).
  Partition(int64_t size, int world, int64_t chunk, int64_t align = kFlatAlign);

  int world() const { return world_; }
  int64_t size() const { return size_; }  // elements that mean something
  int64_t padded() const { return shard_ * world_; }
  int64_t shard() const { return shard_; }  // elements of each rank
  const std::vector<Chunk>& chunks() const { return chunks_; }

  // The pieces of a rank that hold elements of [begin, end) of the full buffer, in order, cut to that range.
  std::vector<Piece> pieces(int rank, int64_t begin, int64_t end) const;
  std::vector<Piece> pieces(int rank) const { return pieces(rank, 0, size_); }

 private:
  int world_ = 1;
  int64_t size_ = 0, shard_ = 0;
  std::vector<Chunk> chunks_;
};

}  // namespace zeno::zero
