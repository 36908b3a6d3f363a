// Each input is read once and the output written once: (n · in + out [+ out]) bytes per element.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "zeno/base/error.h"
#include "zeno/base/math.h"
#include "zeno/comm/cuda/reduce_tree.h"
#include "zeno/device/cuda/runtime.h"

namespace zeno::comm {
namespace {

constexpr int kThreads = 256;
constexpr int kSmall = 8;   // inputs summed in registers at once: a power of two, so that they form a subtree
constexpr int kLevels = 7;  // of the tree above those: at most kSmall << kLevels inputs
constexpr int kBlocksPerProcessor = 8;
static_assert((kSmall << kLevels) >= int(kMostTreeInputs));

__device__ float widen(float v) { return v; }
__device__ float widen(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ float widen(__half v) { return __half2float(v); }
__device__ void narrow(float v, float* to) { *to = v; }
__device__ void narrow(float v, __nv_bfloat16* to) { *to = __float2bfloat16_rn(v); }
__device__ void narrow(float v, __half* to) { *to = __float2half_rn(v); }

// V elements as they lie in memory, moved in pieces of up to 16 bytes.
template <class T, int V>
struct alignas(sizeof(T) * V < 16 ? sizeof(T) * V : 16) Packed {
  T lane[V];
};

// V sums side by side.
template <int V>
struct Lanes {
  float at[V];
};
template <int V>
__device__ Lanes<V> operator+(const Lanes<V>& a, const Lanes<V>& b) {
  Lanes<V> sum;
#pragma unroll
  for (int k = 0; k < V; ++k) sum.at[k] = __fadd_rn(a.at[k], b.at[k]);
  return sum;
}

template <int V, class T>
__device__ Lanes<V> load(const T* from) {
  const Packed<T, V> packed = *reinterpret_cast<const Packed<T, V>*>(from);
  Lanes<V> lanes;
#pragma unroll
  for (int k = 0; k < V; ++k) lanes.at[k] = widen(packed.lane[k]);
  return lanes;
}
template <int V, class T>
__device__ void store(const Lanes<V>& lanes, T* to) {
  Packed<T, V> packed;
#pragma unroll
  for (int k = 0; k < V; ++k) narrow(lanes.at[k], &packed.lane[k]);
  *reinterpret_cast<Packed<T, V>*>(to) = packed;
}

template <int kMost>
struct Inputs {
  const void* data[kMost];
  int n;
};

constexpr int left_of(int n) {  // the largest power of two below n
  int half = 1;
  while (half * 2 < n) half *= 2;
  return half;
}

// The tree over N inputs from `first` on, for one vector; N is small, so the recursion unrolls.
template <int N, int V, class T, int kMost>
__device__ Lanes<V> subtree(const Inputs<kMost>& inputs, int first, int64_t i) {
  if constexpr (N == 1) {
    return load<V>(static_cast<const T*>(inputs.data[first]) + i);
  } else {
    constexpr int kLeft = left_of(N);
    const Lanes<V> left = subtree<kLeft, V, T>(inputs, first, i);
    return left + subtree<N - kLeft, V, T>(inputs, first + kLeft, i);
  }
}

// The same for a number of inputs that is known at run time, 1 to kSmall.
template <int V, class T, int kMost>
__device__ Lanes<V> small_tree(const Inputs<kMost>& inputs, int first, int n, int64_t i) {
  switch (n) {
    case 1:
      return subtree<1, V, T>(inputs, first, i);
    case 2:
      return subtree<2, V, T>(inputs, first, i);
    case 3:
      return subtree<3, V, T>(inputs, first, i);
    case 4:
      return subtree<4, V, T>(inputs, first, i);
    case 5:
      return subtree<5, V, T>(inputs, first, i);
    case 6:
      return subtree<6, V, T>(inputs, first, i);
    case 7:
      return subtree<7, V, T>(inputs, first, i);
    default:
      return subtree<8, V, T>(inputs, first, i);
  }
}

// More inputs: sums of kSmall are added up like the digits of a binary counter, which is the same tree. The
// rest, fewer than kSmall, is the rightmost subtree.
template <int V, class T, int kMost>
__device__ Lanes<V> large_tree(const Inputs<kMost>& inputs, int64_t i) {
  Lanes<V> level[kLevels + 1];
  const int full = inputs.n / kSmall, rest = inputs.n % kSmall;
  for (int g = 0; g < full; ++g) {
    Lanes<V> carry = subtree<kSmall, V, T>(inputs, g * kSmall, i);
    bool carrying = true;
#pragma unroll
    for (int l = 0; l <= kLevels; ++l) {
      if (carrying && (g >> l & 1) != 0) {
        carry = level[l] + carry;
      } else if (carrying) {
        level[l] = carry;
        carrying = false;
      }
    }
  }
  Lanes<V> sum;
  bool empty = rest == 0;
  if (!empty) sum = small_tree<V, T>(inputs, full * kSmall, rest, i);
#pragma unroll
  for (int l = 0; l <= kLevels; ++l) {
    if ((full >> l & 1) == 0) continue;
    sum = empty ? level[l] : level[l] + sum;
    empty = false;
  }
  return sum;
}

template <int V, class In, class Out, int kMost>
__device__ void sum_at(const Inputs<kMost>& inputs, Out* out, bool accumulate, int64_t i) {
  Lanes<V> sum;
  if constexpr (kMost == kSmall) {
    sum = small_tree<V, In>(inputs, 0, inputs.n, i);
  } else {
    sum = large_tree<V, In>(inputs, i);
  }
  if (accumulate) sum = load<V>(out + i) + sum;
  store(sum, out + i);
}

// `vectors` vectors of V elements, then the `tail` elements that do not fill one.
template <int V, class In, class Out, int kMost>
__global__ void __launch_bounds__(kThreads)
    tree_sum_kernel(const __grid_constant__ Inputs<kMost> inputs, Out* out, bool accumulate, int64_t vectors,
                    int64_t tail) {
  const int64_t step = int64_t(gridDim.x) * kThreads;
  for (int64_t item = int64_t(blockIdx.x) * kThreads + threadIdx.x; item < vectors + tail; item += step) {
    if (item < vectors) {
      sum_at<V, In>(inputs, out, accumulate, item * V);
    } else {
      sum_at<1, In>(inputs, out, accumulate, vectors * V + (item - vectors));
    }
  }
}

template <int V, class In, class Out, int kMost>
void launch(cudaStream_t stream, const TreeSum& sum, std::span<const std::byte* const> inputs,
            int64_t count) {
  Inputs<kMost> table;
  table.n = int(inputs.size());
  std::copy(inputs.begin(), inputs.end(), table.data);
  const int64_t vectors = count / V, tail = count % V;
  const int64_t blocks = std::min(div_ceil(vectors + tail, int64_t(kThreads)),
                                  int64_t(cuda::multiprocessors()) * kBlocksPerProcessor);
  tree_sum_kernel<V, In, Out, kMost><<<unsigned(blocks), kThreads, 0, stream>>>(
      table, reinterpret_cast<Out*>(sum.out), sum.accumulate, vectors, tail);
  cuda::check_launch("tree_sum");
}

template <class In, class Out>
void launch_for(cudaStream_t stream, const TreeSum& sum, std::span<const std::byte* const> inputs,
                int64_t count) {
  constexpr int V = 16 / sizeof(In);
  const auto aligned = [](const std::byte* p, size_t to) { return reinterpret_cast<uintptr_t>(p) % to == 0; };
  const bool vectors =
      aligned(sum.out, alignof(Packed<Out, V>)) &&
      std::all_of(inputs.begin(), inputs.end(), [&](const std::byte* p) { return aligned(p, 16); });
  if (inputs.size() <= kSmall) {
    if (vectors) return launch<V, In, Out, kSmall>(stream, sum, inputs, count);
    return launch<1, In, Out, kSmall>(stream, sum, inputs, count);
  }
  if (vectors) return launch<V, In, Out, int(kMostTreeInputs)>(stream, sum, inputs, count);
  launch<1, In, Out, int(kMostTreeInputs)>(stream, sum, inputs, count);
}

template <class F>
void with_device_type(DType dtype, const F& f) {
  switch (dtype) {
    case DType::f32:
      return f.template operator()<float>();
    case DType::bf16:
      return f.template operator()<__nv_bfloat16>();
    case DType::f16:
      return f.template operator()<__half>();
    default:
      fail(ErrorKind::internal, "[tree_sum] got {}, expected a floating type", name_of(dtype));
  }
}

}  // namespace

void cuda_tree_sum(cudaStream_t stream, const TreeSum& sum, std::span<const std::byte* const> inputs,
                   int64_t count) {
  ensure(!inputs.empty() && inputs.size() <= kMostTreeInputs, "[tree_sum] got {} inputs, expected 1 to {}",
         inputs.size(), kMostTreeInputs);
  if (count == 0) return;
  with_device_type(sum.dtype, [&]<class In>() {
    with_device_type(sum.out_dtype, [&]<class Out>() { launch_for<In, Out>(stream, sum, inputs, count); });
  });
}

}  // namespace zeno::comm
