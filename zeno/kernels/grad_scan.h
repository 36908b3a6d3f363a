// One pass over gradients: the sum of squares for the global norm and the search for inf and NaN.
// The sum is taken over blocks of kNormBlock elements (fixed order inside), and blocks are added exactly, so
// the result does not depend on how a tensor is cut into shards as long as cuts fall on multiples of
// kNormBlock.
#pragma once

#include <cstdint>

#include "zeno/device/stream.h"
#include "zeno/device/tensor.h"
#include "zeno/kernels/exact_sum.h"

namespace zeno {

inline constexpr int64_t kNormBlock = 64;

struct GradScan {
  ExactSum squares;
  int64_t nonfinite = 0;   // elements that are inf or NaN (they are left out of `squares`)
  uint64_t first_bad = 0;  // ~place of the first of them: the largest wins, and zero bytes mean none
};

// Adds the scan of `grad` (flat, fp32/bf16/fp16) to *result, which lives in the stream's memory until the
// stream has passed. `place` is that of the first element, wherever the caller counts from.
void grad_scan(StreamRef stream, Tensor grad, GradScan* result, uint64_t place = 0);
// *sum += all of `values` (flat, fp32), exactly. *sum lives where *result does.
void sum_exactly(StreamRef stream, Tensor values, ExactSum* sum);

}  // namespace zeno
