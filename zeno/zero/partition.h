// How a flat buffer of elements is cut over the ranks of a mesh. Pure arithmetic. Works for any size, by
// padding.
//
// The buffer is a row of chunks, each of which a collective moves at once. A chunk is cut evenly over all
// ranks that see different data. What is sharded over fewer axes keeps several of these pieces, which are
// adjacent: pieces are ordered by place along the shard axes, and those of one place by place along `outer`.
// So for any set of axes a rank's part is contiguous in every chunk and lies within its part for fewer axes,
// and each step from one set to the next is one reduce-scatter or all-gather per chunk, whatever the bucket
// size. A rank's shard is the concatenation of its parts. Only the end of the last chunk is padding. Every
// cut is at a multiple of `align`.
#pragma once

#include <cstdint>
#include <vector>

#include "zeno/comm/mesh.h"
#include "zeno/device/flat_layout.h"

namespace zeno::zero {

class Partition {
 public:
  struct Chunk {
    int64_t begin = 0;  // in the full buffer
    int64_t piece = 0;  // elements of the smallest part; the chunk has ranks() of them
    int64_t shard = 0;  // where its smallest part starts in a shard of such parts
  };
  // A range of elements that is contiguous both in the full buffer and in a shard.
  struct Piece {
    int64_t full = 0, shard = 0, count = 0;
  };

  Partition() = default;
  // `chunk` is the largest number of elements of a chunk (rounded up to what the ranks need).
  Partition(int64_t size, const comm::Mesh& mesh, int64_t chunk, int64_t align = kFlatAlign);

  int ranks() const { return mesh_.size(comm::kDataAxes); }
  int64_t size() const { return size_; }  // without padding
  int64_t padded() const { return shard_ * ranks(); }
  const std::vector<Chunk>& chunks() const { return chunks_; }

  // What a rank keeps when the buffer is sharded over `axes`: the number of elements, its part of a chunk
  // (both with padding), and the pieces with elements of [begin, end) of the full buffer, in order, cut to
  // that range.
  int64_t shard(comm::Axes axes) const { return shard_ * parts_within(axes); }
  Piece part(const Chunk& chunk, int rank, comm::Axes axes) const;
  std::vector<Piece> pieces(int rank, comm::Axes axes, int64_t begin, int64_t end) const;
  std::vector<Piece> pieces(int rank, comm::Axes axes) const { return pieces(rank, axes, 0, size_); }
  // The index in the rank's shard over `axes` of an element of the full buffer, which must be in that shard.
  int64_t index(int rank, comm::Axes axes, int64_t full) const;

 private:
  // How many smallest parts a part over `axes` has.
  int parts_within(comm::Axes axes) const { return ranks() / mesh_.size(axes & comm::kDataAxes); }
  int place(int rank, comm::Axes axes) const;

  comm::Mesh mesh_;
  int64_t size_ = 0, shard_ = 0;
  std::vector<Chunk> chunks_;
};

}  // namespace zeno::zero
