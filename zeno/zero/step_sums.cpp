#include "zeno/zero/step_sums.h"

namespace zeno::zero {

namespace cuda {
void combine_async(StreamRef stream, const StepSums* ranks, int count, double loss_scale, double clip,
                   StepOutcome* outcome);
}

void combine_async(StreamRef stream, const StepSums* ranks, int count, double loss_scale, double clip,
                   StepOutcome* outcome) {
  if constexpr (ZENO_CUDA) {
    if (stream.device().kind == Device::Kind::cuda) {
      return cuda::combine_async(stream, ranks, count, loss_scale, clip, outcome);
    }
  }
  stream.launch([=](Workers&) { *outcome = combine(ranks, count, loss_scale, clip); });
}

}  // namespace zeno::zero
