// Where the heads of one attention call are in its packed tensors, and which keys a query sees.
#pragma once

#include <algorithm>
#include <string_view>

#include "zeno/base/math.h"
#include "zeno/kernels/attention.h"

namespace zeno {

// Rows of scratch for the values of a head: whole tiles, whatever the head size.
inline int64_t padded_head(int64_t head_dim) { return round_up<int64_t>(head_dim, 8); }

struct AttentionView {
  AttentionShape shape;
  const int32_t* doc_start = nullptr;  // [B·T] or null

  // Heads per key/value head.
  int64_t group() const { return shape.heads / shape.kv_heads; }

  // [T, D] of one sequence and head; `t` is laid out like qkv (query, key, value) or like out (out).
  Tensor query(const Tensor& t, int64_t b, int64_t h) const { return part(t, b, h); }
  Tensor key(const Tensor& t, int64_t b, int64_t g) const { return part(t, b, shape.heads + g); }
  Tensor value(const Tensor& t, int64_t b, int64_t g) const {
    return part(t, b, shape.heads + shape.kv_heads + g);
  }
  Tensor out(const Tensor& t, int64_t b, int64_t h) const { return part(t, b, h); }

  // Query q sees the keys first_key(b, q)..q: at least itself, whatever doc_start holds.
  int64_t first_key(int64_t b, int64_t q) const {
    int64_t first = doc_start ? doc_start[b * shape.seq + q] : 0;
    if (shape.window > 0) first = std::max(first, q - shape.window + 1);
    return std::clamp<int64_t>(first, 0, q);
  }

 private:
  Tensor part(const Tensor& t, int64_t b, int64_t index) const {
    return t.slice(b * shape.seq, shape.seq).columns(index * shape.head_dim, shape.head_dim);
  }
};

// Checks the shape and the tensors that forward and backward share; `where` names the operation in errors.
AttentionView attention_view(std::string_view where, const AttentionShape& shape, const Tensor& qkv,
                             const Tensor& doc_start, const Tensor& out, const Tensor& lse);

}  // namespace zeno
