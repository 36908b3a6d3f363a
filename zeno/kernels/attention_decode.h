// Attention of new tokens over the keys and values of all tokens before them, which a cache keeps: what
// generation runs instead of attention_forward. On the CPU it gives the bits of attention_forward over the
// whole sequence, however the tokens were cut into calls.
#pragma once

#include "zeno/base/math.h"
#include "zeno/kernels/attention.h"

namespace zeno {

// Keys and values of one layer, for `sequences` sequences of up to `capacity` tokens. Keys are stored in
// transposed tiles of kCacheTile tokens, so that both devices read neighbouring tokens with neighbouring
// lanes.
inline constexpr int64_t kCacheTile = 64;

struct KvCache {
  Tensor keys;  // [sequences · G · tiles, D · kCacheTile], value c of token t of a tile at c · kCacheTile + t
  Tensor values;  // [sequences · G · tiles, kCacheTile · D]
};
inline int64_t cache_tiles(int64_t capacity) { return div_ceil(capacity, kCacheTile); }

struct AttentionDecode {
  AttentionShape shape;  // batch: B sequences with seq: T new tokens each
  Tensor qkv;            // [B·T, (H+2G)·D], as in AttentionForward
  Tensor positions;      // i32 [1, B·T]: of each token in its sequence; consecutive within a sequence
  Tensor slots;          // i32 [1, B]: the sequence of the cache that each continues
  KvCache cache;         // tokens before positions[…] are there; the new ones are added
  int64_t capacity = 0;  // of the cache, in tokens
  Tensor out;            // [B·T, H·D], dtype of qkv
};

void attention_decode(StreamRef stream, const AttentionDecode& op);

// What the kernels of both devices expect of their arguments; throws an internal Error otherwise.
void check_attention_decode(const AttentionDecode& op);

}  // namespace zeno
