#include "zeno/zero/step_sums.h"

#include <algorithm>

#include "zeno/base/math.h"
#include "zeno/device/cuda/runtime.h"

namespace zeno::zero::cuda {
namespace {

// One thread suffices: a few hundred integers per rank, once per step.
__global__ void combine_kernel(const StepSums* ranks, int count, double loss_scale, double clip,
                               StepOutcome* outcome) {
  *outcome = combine(ranks, count, loss_scale, clip);
}

// The sum is of integers, so the order of additions does not matter.
__global__ void add_hits_kernel(const int32_t* hits, int64_t count, int64_t* sum) {
  int64_t mine = 0;
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) mine += hits[i];
  if (mine != 0) atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(mine));
}

}  // namespace

void add_hits(StreamRef stream, Tensor hits, int64_t* sum) {
  if (hits.count() == 0) return;
  constexpr int kThreads = 256, kMostBlocks = 64;
  const auto blocks = uint32_t(std::min<int64_t>(div_ceil<int64_t>(hits.count(), kThreads), kMostBlocks));
  add_hits_kernel<<<blocks, kThreads, 0, zeno::cuda::native(stream)>>>(hits.as<int32_t>(), hits.count(), sum);
  zeno::cuda::check_launch("add_hits");
}

void combine_async(StreamRef stream, const StepSums* ranks, int count, double loss_scale, double clip,
                   StepOutcome* outcome) {
  combine_kernel<<<1, 1, 0, zeno::cuda::native(stream)>>>(ranks, count, loss_scale, clip, outcome);
  zeno::cuda::check_launch("combine");
}

}  // namespace zeno::zero::cuda
