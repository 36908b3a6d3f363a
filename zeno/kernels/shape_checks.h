// What the kernels of every device expect of their arguments; throws an internal Error otherwise.
#pragma once

#include "zeno/kernels/matmul.h"
#include "zeno/kernels/norm.h"

namespace zeno {

void check_shapes(const Matmul& op);
// centered: LayerNorm.
void check_shapes(const NormForward& op, bool centered);
void check_shapes(const NormBackward& op, bool centered);

}  // namespace zeno
