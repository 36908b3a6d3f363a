// What the forward and the backward norm kernels share: a vector (a row, or one head of it) is read by a team
// of threads, and weights come in fp32 or in the dtype of the activations.
#pragma once

#include <cuda_pipeline.h>

#include <atomic>

#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/vector.h"
#include "zeno/kernels/norm.h"

namespace zeno::cuda {

inline constexpr int kMaxNormWarps = 16;

__device__ inline float plus(float a, float b) { return a + b; }
__device__ inline float2 plus(float2 a, float2 b) { return {a.x + b.x, a.y + b.y}; }
__device__ inline float from_lane_xor(float value, int mask) { return __shfl_xor_sync(~0u, value, mask); }
__device__ inline float2 from_lane_xor(float2 value, int mask) {
  return {from_lane_xor(value.x, mask), from_lane_xor(value.y, mask)};
}

// Sums over a team: `team` neighbouring lanes of one warp (a power of two), or the whole block when it is
// wider than a warp. Every thread of the block takes part. `slots` is not used again before the next barrier
// of the block. V: float or float2.
template <bool kWarp, class V>
__device__ inline V team_sum(V value, int team, V* slots) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    if (kWarp && step >= team) continue;
    value = plus(value, from_lane_xor(value, step));
  }
  if constexpr (!kWarp) {
    if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = value;
    __syncthreads();
    const uint32_t slot = threadIdx.x % kMaxNormWarps;
    value = slot < blockDim.x / 32 ? slots[slot] : V{};
#pragma unroll
    for (int step = kMaxNormWarps / 2; step > 0; step /= 2) value = plus(value, from_lane_xor(value, step));
  }
  return value;
}

// Where vector `index` lies: row index / inner, head index % inner.
struct NormPlace {
  int64_t row, head;

  __device__ NormPlace(uint32_t index, uint32_t inner) : row(index), head(0) {
    if (inner == 1) return;
    row = index / inner;
    head = index - uint32_t(row) * inner;
  }
};

// Threads of all blocks of a kernel that walks over the vectors: 1024 on each of 132 processors.
inline constexpr int64_t kNormThreads = 132 * 1024;

// This thread's words of the vectors that are on their way, in dynamic shared memory. It reads only what it
// has copied itself, so its own copies are all it waits for.
template <class T, int kGroups>
struct NormRing {
  using Word = Pack<T, kVector<T>>;
  Word* own;
  int tensors;  // words of so many tensors per group

  __device__ NormRing(uint4* shared, int count)
      : own(reinterpret_cast<Word*>(shared) + threadIdx.x), tensors(count) {}
  __device__ Word* at(int stage, int tensor, int group) const {
    return own + ((stage * tensors + tensor) * kGroups + group) * int(blockDim.x);
  }
  __device__ void copy(int stage, int tensor, int group, const T* from) const {
    __pipeline_memcpy_async(at(stage, tensor, group), from, 16);
  }
};

// weight[i .. i + N), whichever of the two dtypes it has.
template <class T, int N>
__device__ inline void load_weight(const void* weight, bool is_float, int64_t i, float (&w)[N]) {
  if (is_float) {
    unpack(load<N>(static_cast<const float*>(weight) + i), w);
  } else {
    unpack(load<N>(static_cast<const T*>(weight) + i), w);
  }
}

template <class T>
__device__ inline float weight_at(const void* weight, bool is_float, int64_t i) {
  return is_float ? static_cast<const float*>(weight)[i] : to_float(static_cast<const T*>(weight)[i]);
}

// Runs something once per device, the current one.
class DeviceOnce {
 public:
  template <class F>
  void operator()(const F& f) {
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    const uint64_t bit = uint64_t(1) << device;
    if (done_.load(std::memory_order_relaxed) & bit) return;
    f();
    done_.fetch_or(bit, std::memory_order_relaxed);
  }

 private:
  std::atomic<uint64_t> done_ = 0;
};

inline void check_norm_shape(const char* name, const Tensor& t, int64_t rows, int64_t cols, DType dtype) {
  ensure(t.rows == rows && t.cols == cols && t.dtype == dtype,
         "[norm] {}: got {} [{}, {}], expected {} [{}, {}]", name, name_of(t.dtype), t.rows, t.cols,
         name_of(dtype), rows, cols);
}

inline void check_norm_weight(const Tensor& weight, const Tensor& x, int64_t inner) {
  ensure(inner > 0 && x.cols % inner == 0, "[norm] inner: got {}, expected a divisor of {}", inner, x.cols);
  check_norm_shape("weight", weight, 1, x.cols / inner, weight.dtype == DType::f32 ? DType::f32 : x.dtype);
  ensure(x.rows * inner < int64_t(1) << 31, "[norm] x: got {} vectors, expected less than 2^31",
         x.rows * inner);
}

}  // namespace zeno::cuda
