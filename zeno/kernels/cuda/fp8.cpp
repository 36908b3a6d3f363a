#include "zeno/kernels/fp8.h"

#include "zeno/kernels/cuda/matmul/matmul_fp8.h"

namespace zeno::cuda {

void fp8_matmul(StreamRef stream, const Fp8Product& op) {
  const Tensor &a = op.a.values, &b = op.b.values;
  ensure(a.contiguous() && b.contiguous() && a.cols == b.cols && op.c.rows == a.rows && op.c.cols == b.rows,
         "[fp8_matmul] got {} x {} (stride {}) times the transpose of {} x {} (stride {}) into {} x {}",
         a.rows, a.cols, a.stride, b.rows, b.cols, b.stride, op.c.rows, op.c.cols);
  matmul_fp8(stream, {.a = a.data,
                      .b = b.data,
                      .a_e5m2 = op.a.format == Fp8Format::e5m2,
                      .b_e5m2 = op.b.format == Fp8Format::e5m2,
                      .scale_a = op.a.scale.as<float>(),
                      .scale_b = op.b.scale.as<float>(),
                      .m = a.rows,
                      .n = b.rows,
                      .k = a.cols,
                      .c = op.c,
                      .accumulate = op.accumulate,
                      .bias = op.bias,
                      .residual = op.residual});
}

}  // namespace zeno::cuda
