#include "zeno/zero/step_sums.h"

namespace zeno::zero {

namespace cuda {
void combine_async(StreamRef stream, const StepSums* ranks, int count, double loss_scale, double clip,
                   StepOutcome* outcome);
void add_hits(StreamRef stream, Tensor hits, int64_t* sum);
}  // namespace cuda

void add_hits(StreamRef stream, Tensor hits, int64_t* sum) {
  if constexpr (ZENO_CUDA) {
    if (stream.device().kind == Device::Kind::cuda) return cuda::add_hits(stream, hits, sum);
  }
  stream.launch([=](Workers&) {
    for (int64_t i = 0; i < hits.count(); ++i) *sum += hits.as<int32_t>()[i];
  });
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
