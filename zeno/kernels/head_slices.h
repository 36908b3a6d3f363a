// Attention over sequences whose tokens are split over N ranks (Ulysses): before and after attention a rank
// has 1/N of the tokens and all heads; during it, all tokens and 1/N of the heads. These kernels pack and
// unpack what the ranks exchange.
#pragma once

#include "zeno/device/stream.h"
#include "zeno/device/tensor.h"

namespace zeno {

// Legend: B sequences, t tokens of each on this rank, N ranks, H query heads, G key heads and as many value
// heads (or none), D values per head. N divides H. Either N divides G, or G divides N: then N/G ranks have
// the same key head.
struct HeadSlices {
  int64_t batch = 0, seq = 0;  // B, t
  int64_t ranks = 1;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  Tensor tokens;  // [B·t, (H+2G)·D]: all query heads, then all key heads, then all value heads
  Tensor slices;  // [B·N·t, slice_heads·D]: by sequence, rank and token; heads in the same order

  constexpr int64_t own_heads() const { return heads / ranks; }
  constexpr int64_t own_kv_heads() const { return (kv_heads + ranks - 1) / ranks; }
  constexpr int64_t token_heads() const { return heads + 2 * kv_heads; }
  constexpr int64_t slice_heads() const { return own_heads() + 2 * own_kv_heads(); }

  // How many ranks have the same head, and where the heads of a token are in its slices.
  constexpr int64_t copies(int64_t head) const {
    return head < heads || kv_heads >= ranks ? 1 : ranks / kv_heads;
  }
  struct Place {
    int64_t rank, head;
  };
  constexpr Place place(int64_t head, int64_t copy) const {
    if (head < heads) return {head / own_heads(), head % own_heads()};
    const int64_t kv = (head - heads) % kv_heads, first = head < heads + kv_heads ? 0 : own_kv_heads();
    if (kv_heads < ranks) return {kv * (ranks / kv_heads) + copy, own_heads() + first};
    return {kv / own_kv_heads(), own_heads() + first + kv % own_kv_heads()};
  }
  constexpr int64_t slice_row(int64_t row, int64_t rank) const {
    return (row / seq * ranks + rank) * seq + row % seq;
  }
};

// tokens → slices.
void pack_heads(StreamRef stream, const HeadSlices& op);
// slices → tokens. A key or value head that several ranks have becomes the sum of their copies, in fp32 and
// in rank order.
void unpack_heads(StreamRef stream, const HeadSlices& op);

}  // namespace zeno
