// What the kernels of every device expect of their arguments; throws an internal Error otherwise.
#pragma once

#include "zeno/kernels/head_slices.h"
#include "zeno/kernels/matmul.h"
#include "zeno/kernels/noise.h"
#include "zeno/kernels/norm.h"
#include "zeno/kernels/rope.h"

namespace zeno {

void check_shapes(const HeadSlices& op);
void check_shapes(const Matmul& op);
void check_shapes(const Dropout& op);
void check_shapes(const UniformNoise& op);
// centered: LayerNorm.
void check_shapes(const NormForward& op, bool centered);
void check_shapes(const NormBackward& op, bool centered);
void check_shapes(const RopeForward& op);
void check_shapes(const RopeBackward& op);

}  // namespace zeno
