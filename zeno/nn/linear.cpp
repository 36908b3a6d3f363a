#include "zeno/nn/linear.h"

#include "zeno/device/copy.h"
#include "zeno/kernels/matmul.h"

namespace zeno::nn {

void linear_backward(StreamRef stream, const LinearBackward& op) {
  if (op.dbias && op.fresh) fill_zero_async(stream, op.dbias.data, op.dbias.bytes());
  if (op.dbias) bias_backward(stream, op.dy, op.dbias);
  if (op.dweight)
    matmul(stream, {.a = op.dy, .b = op.x, .c = op.dweight, .transpose_a = true, .accumulate = !op.fresh});
  if (op.dx) matmul(stream, {.a = op.dy, .b = op.weight, .c = op.dx});
}

}  // namespace zeno::nn
