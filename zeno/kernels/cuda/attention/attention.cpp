#include "zeno/kernels/cuda/attention/attention.h"

#include <string_view>

#include "zeno/base/error.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/attention_space.h"
#include "zeno/kernels/cuda/attention/attention_cudnn.h"
#include "zeno/kernels/cuda/attention/attention_plain.h"

namespace zeno::cuda {
namespace {

void check_tensor(std::string_view where, std::string_view name, const Tensor& t, DType dtype, int64_t rows,
                  int64_t cols) {
  ensure(t.dtype == dtype && t.rows == rows && t.cols == cols,
         "[{}] {}: got {} [{}, {}], expected {} [{}, {}]", where, name, name_of(t.dtype), t.rows, t.cols,
         name_of(dtype), rows, cols);
}

// Op: AttentionForward or AttentionBackward.
template <class Op>
void check_shared(std::string_view where, const Op& op) {
  const AttentionShape& s = op.shape;
  const int64_t tokens = s.batch * s.seq, d = s.head_dim;
  ensure(d >= 1 && d <= 256, "[{}] head size: got {}, expected 1 to 256", where, d);
  ensure(s.kv_heads > 0 && s.heads > 0 && s.heads % s.kv_heads == 0,
         "[{}] heads: got {} over {} key/value heads, expected a multiple", where, s.heads, s.kv_heads);
  ensure(s.scale > 0, "[{}] scale: got {}, expected more than 0", where, s.scale);
  ensure(is_float(op.qkv.dtype), "[{}] qkv: got {}, expected a floating type", where, name_of(op.qkv.dtype));
  check_tensor(where, "qkv", op.qkv, op.qkv.dtype, tokens, (s.heads + 2 * s.kv_heads) * d);
  check_tensor(where, "out", op.out, op.qkv.dtype, tokens, s.heads * d);
  check_tensor(where, "lse", op.lse, DType::f32, s.batch * s.heads, s.seq);
  ensure(op.lse.contiguous(), "[{}] lse: got a stride of {}, expected {}", where, op.lse.stride, op.lse.cols);
  ensure(!op.doc_start || (op.doc_start.dtype == DType::i32 && op.doc_start.count() == tokens),
         "[{}] doc_start: got {} of {}, expected i32 of {}", where, name_of(op.doc_start.dtype),
         op.doc_start.count(), tokens);
}

// cuDNN reads 16 bytes at a time.
void check_aligned(std::string_view where, std::string_view name, const Tensor& t) {
  ensure(reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && t.stride % 8 == 0,
         "[{}] {}: got address {} and stride {}, expected multiples of 16 bytes", where, name,
         static_cast<const void*>(t.data), t.stride);
}

}  // namespace

void attention_forward(StreamRef stream, const AttentionForward& op) {
  check_shared("attention_forward", op);
  if (op.qkv.rows == 0) return;
  if (!cudnn_takes(op.shape, op.qkv.dtype)) return plain_attention_forward(native(stream), op);
  check_aligned("attention_forward", "qkv", op.qkv);
  check_aligned("attention_forward", "out", op.out);
  cudnn_attention_forward(stream, op);
}

void attention_backward(StreamRef stream, const AttentionBackward& op) {
  const std::string_view where = "attention_backward";
  check_shared(where, op);
  check_tensor(where, "dout", op.dout, op.out.dtype, op.out.rows, op.out.cols);
  check_tensor(where, "dqkv", op.dqkv, op.qkv.dtype, op.qkv.rows, op.qkv.cols);
  const size_t needed = attention_backward_workspace(op.shape, op.qkv.dtype);
  ensure(op.workspace.bytes() >= needed, "[{}] workspace: got {} bytes, expected {}", where,
         op.workspace.bytes(), needed);
  if (op.qkv.rows == 0) return;
  if (!cudnn_takes(op.shape, op.qkv.dtype)) {
    return plain_attention_backward(native(stream), op, reinterpret_cast<float*>(op.workspace.data));
  }
  for (const auto& [name, t] :
       {std::pair{"qkv", op.qkv}, {"out", op.out}, {"dout", op.dout}, {"dqkv", op.dqkv}})
    check_aligned(where, name, t);
  cudnn_attention_backward(stream, op);
}

}  // namespace zeno::cuda
