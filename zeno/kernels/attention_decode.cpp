#include "zeno/kernels/attention_decode.h"

#include "zeno/base/error.h"

namespace zeno {

void check_attention_decode(const AttentionDecode& op) {
  const AttentionShape& s = op.shape;
  const int64_t rows = s.batch * s.seq, d = s.head_dim;
  ensure(d >= 1 && d <= 256, "[attention_decode] head size: got {}, expected 1 to 256", d);
  ensure(s.kv_heads > 0 && s.heads > 0 && s.heads % s.kv_heads == 0,
         "[attention_decode] heads: got {} over {} key/value heads, expected a multiple", s.heads,
         s.kv_heads);
  const auto check = [&](const char* name, const Tensor& t, int64_t height, int64_t width, DType dtype) {
    ensure(t.rows == height && t.cols == width && t.dtype == dtype,
           "[attention_decode] {}: got {} [{}, {}], expected {} [{}, {}]", name, name_of(t.dtype), t.rows,
           t.cols, name_of(dtype), height, width);
  };
  check("qkv", op.qkv, rows, (s.heads + 2 * s.kv_heads) * d, op.qkv.dtype);
  check("out", op.out, rows, s.heads * d, op.qkv.dtype);
  check("positions", op.positions, 1, rows, DType::i32);
  check("slots", op.slots, 1, s.batch, DType::i32);
  const int64_t tiles = s.kv_heads * cache_tiles(op.capacity);
  ensure(is_float(op.qkv.dtype) && op.capacity > 0 && op.cache.keys.rows % tiles == 0,
         "[attention_decode] cache: got {} rows for {} tokens, expected a multiple of {}", op.cache.keys.rows,
         op.capacity, tiles);
  check("keys", op.cache.keys, op.cache.keys.rows, d * kCacheTile, op.qkv.dtype);
  check("values", op.cache.values, op.cache.keys.rows, d * kCacheTile, op.qkv.dtype);
}

}  // namespace zeno
