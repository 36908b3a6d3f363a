#include "zeno/kernels/shape_checks.h"

#include "zeno/base/error.h"

namespace zeno {
namespace {

void check_shape(const char* name, const Tensor& t, int64_t rows, int64_t cols, DType dtype) {
  ensure(t.rows == rows && t.cols == cols && t.dtype == dtype,
         "[norm] {}: got {} [{}, {}], expected {} [{}, {}]", name, name_of(t.dtype), t.rows, t.cols,
         name_of(dtype), rows, cols);
}

void check_weight(const Tensor& weight, const Tensor& x, int64_t inner) {
  ensure(inner > 0 && x.cols % inner == 0, "[norm] inner: got {}, expected a divisor of {}", inner, x.cols);
  check_shape("weight", weight, 1, x.cols / inner, weight.dtype == DType::f32 ? DType::f32 : x.dtype);
}

}  // namespace

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
  check_weight(op.weight, x, op.inner);
  if (op.bias) check_shape("bias", op.bias, 1, x.cols / op.inner, op.weight.dtype);
  if (op.residual) check_shape("residual", op.residual, x.rows, x.cols, x.dtype);
  if (op.residual) check_shape("sum", op.sum, x.rows, x.cols, x.dtype);
  check_shape("y", op.y, x.rows, x.cols, x.dtype);
  check_shape("rstd", op.rstd, x.rows, op.inner, DType::f32);
  if (centered) check_shape("mean", op.mean, x.rows, op.inner, DType::f32);
  ensure(centered || !op.bias, "[norm] bias: RMSNorm has none");
}

void check_shapes(const NormBackward& op, bool centered) {
  const Tensor& x = op.x;
  check_weight(op.weight, x, op.inner);
  check_shape("rstd", op.rstd, x.rows, op.inner, DType::f32);
  if (centered) check_shape("mean", op.mean, x.rows, op.inner, DType::f32);
  check_shape("dy", op.dy, x.rows, x.cols, x.dtype);
  check_shape("dx", op.dx, x.rows, x.cols, x.dtype);
  if (op.dresidual) check_shape("dresidual", op.dresidual, x.rows, x.cols, x.dtype);
  if (op.dweight) check_shape("dweight", op.dweight, 1, x.cols / op.inner, op.dweight.dtype);
  if (op.dbias) check_shape("dbias", op.dbias, 1, x.cols / op.inner, op.dbias.dtype);
}

}  // namespace zeno
