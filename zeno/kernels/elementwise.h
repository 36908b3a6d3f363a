// Casts, sums and scaling of flat arrays (contiguous tensors of equal count).
#pragma once

#include "zeno/device/stream.h"
#include "zeno/device/tensor.h"

namespace zeno {

// y = x in y's dtype, rounded to nearest even. y may not overlap x.
void cast(StreamRef stream, Tensor x, Tensor y);
// y = a + b, summed in fp32; y may be a or b; dtypes may differ.
void add(StreamRef stream, Tensor a, Tensor b, Tensor y);
// x *= factor.
void scale(StreamRef stream, Tensor x, float factor);

}  // namespace zeno
