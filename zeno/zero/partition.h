// How a flat buffer of elements is cut over the ranks of a mesh. Pure arithmetic; total: it pads, never
// declines.
//
// The buffer is a row of chunks (what a collective moves at once). A chunk is cut evenly over all ranks that
// see different data, and what is sharded over fewer axes keeps several of these pieces, which lie side by
// side: pieces are in the order of the places along the shard axes, and those of one place in the order along
// `outer`. So the part of a rank is contiguous in every chunk for any set of axes, part of its part for fewer
// axes, and each step from one set to the next is one reduce-scatter or all-gather per chunk, whatever the
// bucket size. A rank's shard is the concatenation of its parts. Only the end of the last chunk is padding.
// Every cut falls on a multiple of `align`.
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
    int64_t shard = 0;  // where the smallest part starts in a shard of such parts
  };
  // A run of elements that is contiguous in the full buffer and in a shard.
  struct Piece {
    int64_t full = 0, shard = 0, count = 0;
  };

  Partition() = default;
  // `chunk` is the largest number of elements of a chunk (rounded up to what the ranks need).
  Partition(int64_t size, const comm::Mesh& mesh, int64_t chunk, int64_t align = kFlatAlign);

  int ranks() const { return mesh_.size(comm::kDataAxes); }
  int64_t size() const { return size_; }  // elements that mean something
  int64_t padded() const { return shard_ * ranks(); }
  const std::vector<Chunk>& chunks() const { return chunks_; }

  // What a rank keeps when the buffer is sharded over `axes`: elements in all, its part of a chunk, padding
  // included, and the pieces that hold elements of [begin, end) of the full buffer, in order, cut to that
  // range.
  int64_t shard(comm::Axes axes) const { return shard_ * parts_within(axes); }
  Piece part(const Chunk& chunk, int rank, comm::Axes axes) const;
  std::vector<Piece> pieces(int rank, comm::Axes axes, int64_t begin, int64_t end) const;
  std::vector<Piece> pieces(int rank, comm::Axes axes) const { return pieces(rank, axes, 0, size_); }
  // Where the rank's shard over `axes` has an element of the full buffer, which must be in it.
  int64_t index(int rank, comm::Axes axes, int64_t full) const;

 private:
  // Smallest parts in a part over `axes`.
  int parts_within(comm::Axes axes) const { return ranks() / mesh_.size(axes & comm::kDataAxes); }
  int place(int rank, comm::Axes axes) const;

  comm::Mesh mesh_;
  int64_t size_ = 0, shard_ = 0;
  std::vector<Chunk> chunks_;
};

}  // namespace zeno::zero
