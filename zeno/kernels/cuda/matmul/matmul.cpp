#include "zeno/kernels/matmul.h"

#include <algorithm>

#include "zeno/base/error.h"
#include "zeno/kernels/cuda/matmul/matmul_output.h"
#include "zeno/kernels/cuda/matmul/matmul_product.h"
#include "zeno/kernels/shape_checks.h"

namespace zeno::cuda {
namespace {

constexpr uint8_t kBiasAlignment = 4;  // fused biases are read in 16-byte pieces

int64_t depth_of(const Matmul& op) { return op.transpose_a ? op.a.rows : op.a.cols; }

void check_types(const Matmul& op) {
  ensure(
      op.a.dtype == op.b.dtype && (op.c.dtype == op.a.dtype || op.c.dtype == DType::f32),
      "[matmul] on a GPU: got {} times {} into {}, expected operands of one type and C of that type or f32",
      name_of(op.a.dtype), name_of(op.b.dtype), name_of(op.c.dtype));
}

// Whether cuBLASLt has the form: one addend, bias and addend in the type of C.
bool fusible(const Matmul& op) {
  if (op.bias && (op.bias.dtype != op.c.dtype || alignment_of(op.bias.data) < kBiasAlignment)) return false;
  return !op.residual || (op.residual.dtype == op.c.dtype && !op.accumulate);
}

MatmulCall call_of(const Matmul& op) {
  MatmulCall call;
  call.a = op.a.data;
  call.b = op.b.data;
  call.key = {.k = depth_of(op),
              .lda = std::max(op.a.stride, op.a.cols),
              .ldb = std::max(op.b.stride, op.b.cols),
              .a_type = operand_type(op.a.dtype),
              .b_type = operand_type(op.b.dtype),
              .transpose_a = op.transpose_a,
              .transpose_b = op.transpose_b,
              .align_a = alignment_of(op.a.data),
              .align_b = alignment_of(op.b.data)};
  set_output(call, op.c, op.bias, op.residual, op.accumulate);
  return call;
}

}  // namespace

void matmul(StreamRef stream, const Matmul& op) {
  check_shapes(op);
  check_types(op);
  if (op.c.count() == 0) return;
  if (depth_of(op) == 0) return prepare_output(stream, op);
  if (fusible(op) && run_product(stream, call_of(op))) return;
  prepare_output(stream, op);
  Matmul product = op;
  product.bias = product.residual = {};
  product.accumulate = true;
  const MatmulCall call = call_of(product);
  ensure(run_product(stream, call), "[matmul] cuBLASLt has no algorithm for {}, row strides {}, {}, {}",
         describe(call.key), call.key.lda, call.key.ldb, call.key.ldc);
}

}  // namespace zeno::cuda
