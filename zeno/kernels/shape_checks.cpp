#include "zeno/kernels/shape_checks.h"

#include "zeno/base/error.h"

namespace zeno {
namespace {

void check_shape(const char* name, const Tensor& t, int64_t rows, int64_t cols, DType dtype) {
  ensure(t.rows == rows && t.cols == cols && t.dtype == dtype,
         "[kernels] {}: got {} [{}, {}], expected {} [{}, {}]", name, name_of(t.dtype), t.rows, t.cols,
         name_of(dtype), rows, cols);
}

void check_weight(const Tensor& weight, int64_t width, DType dtype) {
  check_shape("weight", weight, 1, width, weight.dtype == DType::f32 ? DType::f32 : dtype);
}

template <class Op>
void check_heads(const Op& op, const Tensor& x) {
  const int64_t heads = op.q_heads + op.k_heads;
  ensure(op.head_dim > 0 && op.head_dim % 2 == 0 && op.q_heads >= 0 && op.k_heads >= 0 &&
             x.cols % op.head_dim == 0 && heads * op.head_dim <= x.cols,
         "[rope] heads: got {} + {} of {} values for {} columns, expected whole heads of even size",
         op.q_heads, op.k_heads, op.head_dim, x.cols);
  ensure(op.table.cols == op.head_dim && op.table.dtype == DType::f32,
         "[rope] table: got {} columns, expected {}", op.table.cols, op.head_dim);
  ensure(op.positions.count() == x.rows, "[rope] positions: got {}, expected {}", op.positions.count(),
         x.rows);
  ensure(bool(op.q_weight) == bool(op.k_weight),
         "[rope] q_weight and k_weight: got one, expected both or none");
  if (!op.q_weight) return;
  check_weight(op.q_weight, op.head_dim, x.dtype);
  check_weight(op.k_weight, op.head_dim, x.dtype);
  ensure(op.q_weight.dtype == op.k_weight.dtype, "[rope] weights: got {} and {}, expected one dtype",
         name_of(op.q_weight.dtype), name_of(op.k_weight.dtype));
  check_shape("rstd", op.rstd, x.rows, heads, DType::f32);
}

}  // namespace

void check_shapes(const HeadSlices& op) {
  const bool whole = op.heads % op.ranks == 0 && (op.kv_heads % op.ranks == 0 || op.ranks % op.kv_heads == 0);
  ensure(whole && op.batch * op.seq == op.tokens.rows,
         "[kernels] heads: got {} + 2 × {} for {} ranks and {} rows, expected whole heads", op.heads,
         op.kv_heads, op.ranks, op.tokens.rows);
  const DType dtype = op.tokens.dtype;
  check_shape("tokens", op.tokens, op.batch * op.seq, op.token_heads() * op.head_dim, dtype);
  check_shape("slices", op.slices, op.tokens.rows * op.ranks, op.slice_heads() * op.head_dim, dtype);
}

void check_shapes(const Matmul& op) {
  const int64_t m = op.c.rows, n = op.c.cols;
  const int64_t k = op.transpose_a ? op.a.rows : op.a.cols;
  const auto fits = [](const Tensor& t, int64_t rows, int64_t cols) {
    return is_float(t.dtype) && t.rows == rows && t.cols == cols && (t.stride >= cols || rows <= 1);
  };
  ensure(is_float(op.c.dtype) && op.c.stride >= n, "[matmul] C: got {} [{}, {}] with stride {}",
         name_of(op.c.dtype), m, n, op.c.stride);
  ensure(fits(op.a, op.transpose_a ? k : m, op.transpose_a ? m : k),
         "[matmul] A: got {} [{}, {}], C is [{}, {}]", name_of(op.a.dtype), op.a.rows, op.a.cols, m, n);
  ensure(fits(op.b, op.transpose_b ? n : k, op.transpose_b ? k : n),
         "[matmul] B: got {} [{}, {}], C is [{}, {}], K is {}", name_of(op.b.dtype), op.b.rows, op.b.cols, m,
         n, k);
  ensure(!op.bias || fits(op.bias, 1, n), "[matmul] bias: got {} [{}, {}], expected [1, {}]",
         name_of(op.bias.dtype), op.bias.rows, op.bias.cols, n);
  ensure(!op.residual || fits(op.residual, m, n), "[matmul] residual: got {} [{}, {}], expected [{}, {}]",
         name_of(op.residual.dtype), op.residual.rows, op.residual.cols, m, n);
}

void check_shapes(const NormForward& op, bool centered) {
  const Tensor& x = op.x;
  check_weight(op.weight, x.cols, x.dtype);
  if (op.bias) check_shape("bias", op.bias, 1, x.cols, op.weight.dtype);
  if (op.residual) check_shape("residual", op.residual, x.rows, x.cols, x.dtype);
  if (op.residual) check_shape("sum", op.sum, x.rows, x.cols, x.dtype);
  check_shape("y", op.y, x.rows, x.cols, x.dtype);
  check_shape("rstd", op.rstd, x.rows, 1, DType::f32);
  if (centered) check_shape("mean", op.mean, x.rows, 1, DType::f32);
  ensure(centered || !op.bias, "[norm] bias: RMSNorm has none");
}

void check_shapes(const NormBackward& op, bool centered) {
  const Tensor& x = op.x;
  check_weight(op.weight, x.cols, x.dtype);
  check_shape("rstd", op.rstd, x.rows, 1, DType::f32);
  if (centered) check_shape("mean", op.mean, x.rows, 1, DType::f32);
  check_shape("dy", op.dy, x.rows, x.cols, x.dtype);
  check_shape("dx", op.dx, x.rows, x.cols, x.dtype);
  if (op.dresidual) check_shape("dresidual", op.dresidual, x.rows, x.cols, x.dtype);
  if (op.dweight) check_shape("dweight", op.dweight, 1, x.cols, op.dweight.dtype);
  if (op.dbias) check_shape("dbias", op.dbias, 1, x.cols, op.dbias.dtype);
}

void check_shapes(const RopeForward& op) {
  check_heads(op, op.x);
  check_shape("y", op.y, op.x.rows, op.x.cols, op.x.dtype);
  if (op.raw) check_shape("raw", op.raw, op.x.rows, (op.q_heads + op.k_heads) * op.head_dim, op.x.dtype);
}

void check_shapes(const RopeBackward& op) {
  check_heads(op, op.dx);
  if (!op.q_weight) return;
  const int64_t width = (op.q_heads + op.k_heads) * op.head_dim;
  ensure(op.x.rows == op.dx.rows && op.x.cols >= width && op.x.dtype == op.dx.dtype,
         "[rope] x: got {} [{}, {}], expected {} [{}, {}]", name_of(op.x.dtype), op.x.rows, op.x.cols,
         name_of(op.dx.dtype), op.dx.rows, width);
  if (op.dq_weight) check_shape("dq_weight", op.dq_weight, 1, op.head_dim, op.dq_weight.dtype);
  if (op.dk_weight) check_shape("dk_weight", op.dk_weight, 1, op.head_dim, op.dk_weight.dtype);
}

void check_shapes(const Dropout& op) {
  check_shape("key", op.noise.key, 1, 1, DType::i64);
  check_shape("y", op.y, op.x.rows, op.x.cols, op.x.dtype);
  ensure(op.probability >= 0 && op.probability < 1, "[dropout] probability: got {}, expected 0 to below 1",
         op.probability);
}

void check_shapes(const UniformNoise& op) { check_shape("key", op.noise.key, 1, 1, DType::i64); }

}  // namespace zeno
