// What a layer does in a pass over a micro-batch, in the terms that a machine has rates for. The planner
// turns it into seconds; nothing here knows a machine.
#pragma once

#include "zeno/base/dtype.h"

namespace zeno::nn {

// Bytes are those of every kernel's operands and results, each once, fused as the kernels are.
struct Work {
  double matmul_flops = 0;     // matmuls in the compute dtype
  double fp8_flops = 0;        // matmuls in fp8
  double attention_flops = 0;  // scores and values, causal
  double bytes = 0;            // read plus written
  double gradients = 0;        // elements of weight gradients, which have their own dtype
  double packed = 0;           // elements of matmul operands, which CPU kernels copy into panels

  double flops() const { return matmul_flops + fp8_flops + attention_flops; }
  Work& operator+=(const Work& other) {
    matmul_flops += other.matmul_flops;
    fp8_flops += other.fp8_flops;
    attention_flops += other.attention_flops;
    bytes += other.bytes;
    gradients += other.gradients;
    packed += other.packed;
    return *this;
  }
  friend Work operator+(Work a, const Work& b) { return a += b; }
  friend Work operator-(const Work& a, const Work& b) {
    return {a.matmul_flops - b.matmul_flops,
            a.fp8_flops - b.fp8_flops,
            a.attention_flops - b.attention_flops,
            a.bytes - b.bytes,
            a.gradients - b.gradients,
            a.packed - b.packed};
  }
};

struct LayerWork {
  Work forward, backward;
  Work last;  // the end of forward, skipped if only its saved activations are needed

  LayerWork& operator+=(const LayerWork& other) {
    forward += other.forward;
    backward += other.backward;
    last += other.last;
    return *this;
  }
  friend LayerWork operator+(LayerWork a, const LayerWork& b) { return a += b; }
};

// [rows, inner] · [inner, cols]; all three matrices have the type.
inline Work product_work(double rows, double inner, double cols, DType dtype) {
  const double operands = rows * inner + inner * cols;
  return {.matmul_flops = 2 * rows * inner * cols,
          .bytes = (operands + rows * cols) * double(size_of(dtype)),
          .packed = operands};
}

// The gradient of a weight [out, in] from dy [rows, out] and x [rows, in].
inline Work gradient_work(double rows, double in, double out, DType dtype) {
  const double operands = rows * (in + out);
  return {.matmul_flops = 2 * rows * in * out,
          .bytes = operands * double(size_of(dtype)),
          .gradients = in * out,
          .packed = operands};
}

}  // namespace zeno::nn
