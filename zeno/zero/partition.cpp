#include "zeno/zero/partition.h"

#include <algorithm>

#include "zeno/base/error.h"

namespace zeno::zero {

Partition::Partition(int64_t size, int world, int64_t chunk, int64_t align) : world_(world), size_(size) {
  ensure(size >= 0 && world > 0, "[partition] size {}, world {}", size, world);
  const int64_t unit = world * align;
  chunk = round_up(std::max<int64_t>(chunk, 1), unit);
  for (int64_t begin = 0; begin < size; begin += chunk) {
    const int64_t piece = round_up(std::min(chunk, size - begin), unit) / world;
    chunks_.push_back({begin, piece, shard_});
    shard_ += piece;
  }
}

std::vector<Partition::Piece> Partition::pieces(int rank, int64_t begin, int64_t end) const {
  std::vector<Piece> result;
  for (const Chunk& chunk : chunks_) {
    const int64_t start = chunk.begin + rank * chunk.piece;
    const int64_t from = std::max(begin, start), to = std::min(end, start + chunk.piece);
    if (from < to) result.push_back({from, chunk.shard + (from - start), to - from});
  }
  return result;
}

}  // namespace zeno::zero
