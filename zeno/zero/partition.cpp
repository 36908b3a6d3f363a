#include "zeno/zero/partition.h"

#include <algorithm>

#include "zeno/base/error.h"

namespace zeno::zero {

using comm::Axes;
using comm::Axis;

Partition::Partition(int64_t size, const comm::Mesh& mesh, int64_t chunk, int64_t align)
    : mesh_(mesh), size_(size) {
  ensure(size >= 0, "[partition] size {}", size);
  const int64_t unit = ranks() * align;
  chunk = round_up(std::max<int64_t>(chunk, 1), unit);
  for (int64_t begin = 0; begin < size; begin += chunk) {
    const int64_t piece = round_up(std::min(chunk, size - begin), unit) / ranks();
    chunks_.push_back({begin, piece, shard_});
    shard_ += piece;
  }
}

int Partition::place(int rank, Axes axes) const {
  const bool nested = !axes.has(Axis::outer) || axes.has(mesh_.needed(comm::kShardAxes));
  ensure(nested, "[partition] parts over {} are not parts of those over fewer axes", describe(axes));
  const Axes across = axes & Axes{Axis::outer};
  return mesh_.place(rank, axes & comm::kShardAxes) * mesh_.size(across) + mesh_.place(rank, across);
}

Partition::Piece Partition::part(const Chunk& chunk, int rank, Axes axes) const {
  const int64_t within = parts_within(axes), count = chunk.piece * within;
  return {chunk.begin + place(rank, axes) * count, chunk.shard * within, count};
}

std::vector<Partition::Piece> Partition::pieces(int rank, Axes axes, int64_t begin, int64_t end) const {
  std::vector<Piece> result;
  for (const Chunk& chunk : chunks_) {
    const Piece whole = part(chunk, rank, axes);
    const int64_t from = std::max(begin, whole.full), to = std::min(end, whole.full + whole.count);
    if (from < to) result.push_back({from, whole.shard + (from - whole.full), to - from});
  }
  return result;
}

int64_t Partition::index(int rank, Axes axes, int64_t full) const {
  ensure(!chunks_.empty(), "[partition] it is empty");
  const auto next = std::ranges::upper_bound(chunks_, full, {}, &Chunk::begin);
  const Piece whole = part(*std::prev(next), rank, axes);
  ensure(full >= whole.full && full <= whole.full + whole.count,
         "[partition] element {} is not in the shard of rank {}", full, rank);
  return whole.shard + (full - whole.full);
}

}  // namespace zeno::zero
