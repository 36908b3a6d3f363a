#include "zeno/nn/linear.h"

#include <algorithm>

#include "zeno/device/copy.h"
#include "zeno/kernels/fp8.h"
#include "zeno/kernels/matmul.h"

namespace zeno::nn {
namespace {

constexpr auto kValues = Fp8Format::e4m3, kGradients = Fp8Format::e5m2;

Tensor take_scale(Layout& work) { return work.take(DType::f32, 1, 2); }
Tensor take_bytes(Layout& work, int64_t rows, int64_t cols) { return work.take(DType::u8, rows, cols); }

struct ForwardSpace {
  Fp8Matrix x, weight;  // [R, K], [N, K]

  ForwardSpace(Layout& work, int64_t rows, int64_t in, int64_t out) {
    x.scale = take_scale(work);
    weight.scale = take_scale(work);
    x.values = take_bytes(work, rows, in);
    weight.values = take_bytes(work, out, in);
  }
};

// Products want the dimension that is summed over last in both operands. The weight takes the place of what
// only its own gradient needed.
struct BackwardSpace {
  Fp8Matrix dy;              // [R, N]
  Fp8Matrix dy_columns;      // [N, R]
  Fp8Matrix x_columns;       // [K, R]
  Fp8Matrix weight_columns;  // [K, N]

  BackwardSpace(Layout& work, int64_t rows, int64_t in, int64_t out) {
    dy.format = dy_columns.format = kGradients;
    dy.scale = dy_columns.scale = take_scale(work);
    x_columns.scale = take_scale(work);
    weight_columns.scale = take_scale(work);
    dy.values = take_bytes(work, rows, out);
    const size_t mark = work.mark();
    dy_columns.values = take_bytes(work, out, rows);
    x_columns.values = take_bytes(work, in, rows);
    work.rewind(mark);
    weight_columns.values = take_bytes(work, in, out);
  }
};

void fp8_forward(StreamRef stream, const LinearForward& op) {
  Layout work(op.fp8);
  const ForwardSpace space(work, op.x.rows, op.x.cols, op.weight.rows);
  fp8_quantise(stream, {.x = op.x, .format = kValues, .rows = space.x.values, .scale = space.x.scale});
  fp8_quantise(stream,
               {.x = op.weight, .format = kValues, .rows = space.weight.values, .scale = space.weight.scale});
  fp8_matmul(stream, {.a = space.x, .b = space.weight, .c = op.y, .bias = op.bias, .residual = op.residual});
}

void fp8_backward(StreamRef stream, const LinearBackward& op) {
  if (!op.dweight && !op.dx) return;
  Layout work(op.fp8);
  const BackwardSpace space(work, op.dy.rows, op.weight.cols, op.weight.rows);
  fp8_quantise(stream, {.x = op.dy,
                        .format = kGradients,
                        .rows = op.dx ? space.dy.values : Tensor{},
                        .columns = op.dweight ? space.dy_columns.values : Tensor{},
                        .scale = space.dy.scale});
  const auto quantise_columns = [&](Tensor from, const Fp8Matrix& to) {
    fp8_quantise(stream, {.x = from, .format = to.format, .columns = to.values, .scale = to.scale});
  };
  if (op.dweight) {
    quantise_columns(op.x, space.x_columns);
    fp8_matmul(stream,
               {.a = space.dy_columns, .b = space.x_columns, .c = op.dweight, .accumulate = !op.fresh});
  }
  if (op.dx) {
    quantise_columns(op.weight, space.weight_columns);
    fp8_matmul(stream, {.a = space.dy, .b = space.weight_columns, .c = op.dx});
  }
}

}  // namespace

void linear_forward(StreamRef stream, const LinearForward& op) {
  if (op.fp8) return fp8_forward(stream, op);
  matmul(
      stream,
      {.a = op.x, .b = op.weight, .c = op.y, .transpose_b = true, .bias = op.bias, .residual = op.residual});
}

void linear_backward(StreamRef stream, const LinearBackward& op) {
  if (op.dbias && op.fresh) fill_zero_async(stream, op.dbias.data, op.dbias.bytes());
  if (op.dbias) bias_backward(stream, op.dy, op.dbias);
  if (op.fp8) return fp8_backward(stream, op);
  if (op.dweight)
    matmul(stream, {.a = op.dy, .b = op.x, .c = op.dweight, .transpose_a = true, .accumulate = !op.fresh});
  if (op.dx) matmul(stream, {.a = op.dy, .b = op.weight, .c = op.dx});
}

LayerWork work_of(const LinearWork& l) {
  const Work y = product_work(l.rows, l.in, l.out, l.compute),
             dx = product_work(l.rows, l.out, l.in, l.compute),
             dweight = l.trained ? gradient_work(l.rows, l.in, l.out, l.compute) : Work{};
  if (!l.fp8) return {.forward = y, .backward = dx + dweight};
  // Quantising reads twice, once for the scale, and writes a byte; products read bytes.
  const double wide = double(size_of(l.compute)), quantise = 2 * wide + 1;
  const double x = l.rows * l.in, weight = l.in * l.out, result = l.rows * l.out;
  const double trained = l.trained ? 1 : 0;
  return {.forward = {.fp8_flops = y.matmul_flops, .bytes = (quantise + 1) * (x + weight) + wide * result},
          .backward = {.fp8_flops = dx.matmul_flops + dweight.matmul_flops,
                       .bytes = (quantise + 1 + 2 * trained) * result + (quantise + 1) * weight + wide * x +
                                trained * (quantise + 1) * x,
                       .gradients = dweight.gradients}};
}

Tensor take_fp8(Layout& work, int64_t rows, int64_t in, int64_t out) {
  require(
      rows % 16 == 0 && in % 16 == 0 && out % 16 == 0, ErrorKind::usage,
      "[linear] fp8: got {} tokens and a weight of {} x {}, expected multiples of 16; change --seq-len or "
      "--micro-batch, or use --matmul-dtype bf16",
      rows, out, in);
  Layout forward, backward;
  ForwardSpace(forward, rows, in, out);
  BackwardSpace(backward, rows, in, out);
  return work.take(DType::u8, 1, int64_t(std::max(forward.peak(), backward.peak())));
}

}  // namespace zeno::nn
