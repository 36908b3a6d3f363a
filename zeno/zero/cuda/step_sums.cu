#include "zeno/zero/step_sums.h"

#include "zeno/device/cuda/runtime.h"

namespace zeno::zero::cuda {
namespace {

// One thread: a few hundred integers per rank, once per step.
__global__ void combine_kernel(const StepSums* ranks, int count, double loss_scale, double clip,
                               StepOutcome* outcome) {
  *outcome = combine(ranks, count, loss_scale, clip);
}

}  // namespace

void combine_async(StreamRef stream, const StepSums* ranks, int count, double loss_scale, double clip,
                   StepOutcome* outcome) {
  combine_kernel<<<1, 1, 0, zeno::cuda::native(stream)>>>(ranks, count, loss_scale, clip, outcome);
  zeno::cuda::check_launch("combine");
}

}  // namespace zeno::zero::cuda
