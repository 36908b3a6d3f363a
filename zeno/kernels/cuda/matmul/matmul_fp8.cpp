#include "zeno/kernels/cuda/matmul/matmul_fp8.h"

#include "zeno/base/error.h"
#include "zeno/kernels/cuda/matmul/matmul_output.h"
#include "zeno/kernels/cuda/matmul/matmul_product.h"

namespace zeno::cuda {
namespace {

constexpr int64_t kStep = 16;  // elements of a vector of 16 bytes

void check_form(const Fp8Matmul& op) {
  ensure(!(op.a_e5m2 && op.b_e5m2), "[matmul] fp8: e5m2 times e5m2 is not a form of the tensor cores");
  ensure(op.m >= 0 && op.n % kStep == 0 && op.k % kStep == 0,
         "[matmul] fp8: got {} x {} x {}, expected N and K in multiples of {}", op.m, op.n, op.k, kStep);
  ensure(op.c.dtype == DType::bf16 || op.c.dtype == DType::f32,
         "[matmul] fp8: C is {}, expected bf16 or fp32", name_of(op.c.dtype));
  const auto fits = [](const Tensor& t, int64_t rows, int64_t cols) {
    return is_float(t.dtype) && t.rows == rows && t.cols == cols && (t.stride >= cols || rows <= 1);
  };
  ensure(fits(op.c, op.m, op.n), "[matmul] fp8 C: got [{}, {}] with stride {}, expected [{}, {}]", op.c.rows,
         op.c.cols, op.c.stride, op.m, op.n);
  ensure(!op.bias || fits(op.bias, 1, op.n), "[matmul] fp8 bias: got {} [{}, {}], expected [1, {}]",
         name_of(op.bias.dtype), op.bias.rows, op.bias.cols, op.n);
  ensure(!op.residual || fits(op.residual, op.m, op.n),
         "[matmul] fp8 residual: got {} [{}, {}], expected [{}, {}]", name_of(op.residual.dtype),
         op.residual.rows, op.residual.cols, op.m, op.n);
}

void check_operands(const Fp8Matmul& op) {
  ensure(op.a != nullptr && op.b != nullptr && alignment_of(op.a) == kMostAlignment &&
             alignment_of(op.b) == kMostAlignment,
         "[matmul] fp8: operands must be aligned to 16 bytes");
  ensure(op.scale_a != nullptr && op.scale_b != nullptr, "[matmul] fp8: operands without scales");
}

bool fusible(const Fp8Matmul& op) {
  if (op.bias && (op.bias.dtype != DType::bf16 || alignment_of(op.bias.data) < kMostAlignment)) return false;
  return !op.residual || (op.residual.dtype == op.c.dtype && !op.accumulate);
}

MatmulCall call_of(const Fp8Matmul& op) {
  MatmulCall call;
  call.a = op.a;
  call.b = op.b;
  call.scale_a = op.scale_a;
  call.scale_b = op.scale_b;
  call.key = {.k = op.k,
              .lda = op.k,
              .ldb = op.k,
              .a_type = op.a_e5m2 ? OperandType::e5m2 : OperandType::e4m3,
              .b_type = op.b_e5m2 ? OperandType::e5m2 : OperandType::e4m3,
              .transpose_b = true,
              .align_a = alignment_of(op.a),
              .align_b = alignment_of(op.b)};
  set_output(call, op.c, op.bias, op.residual, op.accumulate);
  return call;
}

}  // namespace

void matmul_fp8(StreamRef stream, const Fp8Matmul& op) {
  check_form(op);
  if (op.c.count() == 0) return;
  const Matmul addends{.c = op.c, .accumulate = op.accumulate, .bias = op.bias, .residual = op.residual};
  if (op.k == 0) return prepare_output(stream, addends);
  check_operands(op);
  if (fusible(op) && run_product(stream, call_of(op))) return;
  prepare_output(stream, addends);
  Fp8Matmul product = op;
  product.bias = product.residual = {};
  product.accumulate = true;
  const MatmulCall call = call_of(product);
  ensure(run_product(stream, call), "[matmul] cuBLASLt has no algorithm for {}, row stride {} of C",
         describe(call.key), call.key.ldc);
}

}  // namespace zeno::cuda
