#include "zeno/kernels/cpu/attention_view.h"

#include "zeno/base/error.h"

namespace zeno {

AttentionView attention_view(std::string_view where, const AttentionShape& shape, const Tensor& qkv,
                             const Tensor& doc_start, const Tensor& out, const Tensor& lse) {
  const int64_t tokens = shape.batch * shape.seq, d = shape.head_dim;
  ensure(d >= 1 && d <= 256, "[{}] head size: got {}, expected 1 to 256", where, d);
  ensure(shape.kv_heads > 0 && shape.heads > 0 && shape.heads % shape.kv_heads == 0,
         "[{}] heads: got {} over {} key/value heads, expected a multiple", where, shape.heads,
         shape.kv_heads);
  ensure(shape.scale > 0, "[{}] scale: got {}, expected more than 0", where, shape.scale);
  const int64_t width = (shape.heads + 2 * shape.kv_heads) * d;
  ensure(is_float(qkv.dtype) && qkv.rows == tokens && qkv.cols == width,
         "[{}] qkv: got {} [{}, {}], expected [{}, {}]", where, name_of(qkv.dtype), qkv.rows, qkv.cols,
         tokens, width);
  ensure(out.dtype == qkv.dtype && out.rows == tokens && out.cols == shape.heads * d,
         "[{}] out: got {} [{}, {}], expected {} [{}, {}]", where, name_of(out.dtype), out.rows, out.cols,
         name_of(qkv.dtype), tokens, shape.heads * d);
  ensure(lse.dtype == DType::f32 && lse.rows == shape.batch * shape.heads && lse.cols == shape.seq,
         "[{}] lse: got {} [{}, {}], expected fp32 [{}, {}]", where, name_of(lse.dtype), lse.rows, lse.cols,
         shape.batch * shape.heads, shape.seq);
  ensure(!doc_start || (doc_start.dtype == DType::i32 && doc_start.count() == tokens),
         "[{}] doc_start: got {} of {}, expected i32 of {}", where, name_of(doc_start.dtype),
         doc_start.count(), tokens);
  return {.shape = shape, .doc_start = doc_start ? doc_start.as<int32_t>() : nullptr};
}

}  // namespace zeno
