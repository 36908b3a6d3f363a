#include "zeno/kernels/cross_entropy.h"

#include <cooperative_groups.h>
#include <cuda_pipeline.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "zeno/base/math.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/fast_math.h"
#include "zeno/kernels/cuda/vector.h"

// A cluster of blocks per row, each with a part small enough that several blocks share a processor: while one
// waits for its data or for its peers, the others compute. A block copies its part into shared memory, takes
// the maximum and Σ exp(x - max) as the words arrive, exchanges them with its peers and writes the gradient
// from shared memory. What does not fit there (only of enormous rows) is read again, mostly from L2.
namespace zeno::cuda {
namespace {

namespace groups = cooperative_groups;

constexpr int kMaxThreads = 512;
constexpr int kBatch = 4;              // words of 16 bytes a thread takes together
constexpr int kPartBytes = 64 * 1024;  // of a row, per block, where kMaxParts suffice
constexpr int kMaxKept = 224 * 1024;   // bytes of shared memory, of the 227 KiB a block may have
constexpr uint32_t kMaxPartBits = 3;   // 8 blocks: the largest cluster every device takes
constexpr uint32_t kMaxParts = 1 << kMaxPartBits;

struct CrossEntropyArgs {
  int64_t stride, width;
  const int32_t* targets;
  float* losses;
  int32_t* hits;  // null: not wanted
  float grad_scale;
  uint32_t part_bits = 0;  // log2 of the blocks per row
  uint32_t kept = 0;       // words of a part kept in shared memory
};

// A row cut at 16-byte boundaries: up to N - 1 elements, whole words, up to N - 1 elements. The words are
// dealt out in parts; the first threads of part 0 take the elements at both ends, one of each.
template <class T>
struct Row {
  static constexpr int N = kVector<T>;
  T* data;
  int64_t width;
  uint32_t head, tail;    // elements outside words
  uint32_t begin, words;  // of this part
  Pack<T, N>* first;      // of these words
  uint32_t part;

  __device__ Row(T* at, int64_t count, uint32_t rank, uint32_t part_bits)
      : data(at), width(count), part(rank) {
    const uint32_t misaligned = uint32_t(reinterpret_cast<uintptr_t>(at) % 16 / sizeof(T));
    head = misaligned == 0 ? 0 : N - misaligned;
    if (head > count) head = uint32_t(count);
    const uint32_t all = uint32_t((count - head) / N);
    tail = uint32_t(count - head - int64_t(all) * N);
    const uint32_t share = max((all + (1u << part_bits) - 1) >> part_bits, 1u);
    begin = min(part * share, all);
    words = min(share, all - begin);
    first = reinterpret_cast<Pack<T, N>*>(data + head) + begin;
  }
  __device__ Pack<T, N>* word(uint32_t i) const { return first + i; }
  // Index of this thread's element at the head or the tail; -1: none.
  __device__ int64_t head_index() const {
    return part == 0 && threadIdx.x < head ? int64_t(threadIdx.x) : -1;
  }
  __device__ int64_t tail_index() const {
    return part == 0 && threadIdx.x < tail ? width - tail + threadIdx.x : -1;
  }
  // Whether this thread is the one that reads and writes element i.
  __device__ bool is_mine(int64_t i) const {
    if (i < head || i >= width - tail) return i == head_index() || i == tail_index();
    const uint32_t at = uint32_t((i - head) / N);
    return at >= begin && at - begin < words && (at - begin) % blockDim.x == threadIdx.x;
  }
};

// Values of which the largest is wanted: 16-bit ones are compared two at a time.
template <class T>
using Tops = std::conditional_t<std::is_same_v<T, float>, float,
                                std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>>;

__device__ inline float larger(float a, float b) { return fmaxf(a, b); }
__device__ inline __half2 larger(__half2 a, __half2 b) { return __hmax2(a, b); }
__device__ inline __nv_bfloat162 larger(__nv_bfloat162 a, __nv_bfloat162 b) { return __hmax2(a, b); }
__device__ inline float largest(float top) { return top; }
__device__ inline float largest(__half2 tops) { return fmaxf(to_float(tops.x), to_float(tops.y)); }
__device__ inline float largest(__nv_bfloat162 tops) { return fmaxf(to_float(tops.x), to_float(tops.y)); }

template <class T>
__device__ inline Tops<T> tops_of(const Pack<T, kVector<T>>& pack) {
  const auto* tops = reinterpret_cast<const Tops<T>*>(pack.words);
  return larger(larger(tops[0], tops[1]), larger(tops[2], tops[3]));
}

// Running maximum and Σ 2^(x · log2 e - base), the base being max · log2 e as rounded: whoever uses the sum
// takes the same base.
struct Softmax {
  float max = -INFINITY, sum = 0;

  // Nothing but -inf: every term is 0 with any finite base.
  __device__ float base() const { return max == -INFINITY ? 0.0f : max * kLog2e; }
  __device__ void raise(float to) {
    if (!(to > max)) return;
    const float before = max;
    const float from = base();
    max = to;
    // Before the first finite value the sum is 0, or NaN if there was one, and stays that.
    if (before != -INFINITY) sum *= exp2_fast(from - base());
  }
  template <int N>
  __device__ void add(const float (&x)[N]) {
    const float from = base();
    float part[2] = {};
#pragma unroll
    for (int i = 0; i < N; ++i) part[i % 2] += exp2_fast(fmaf(x[i], kLog2e, -from));
    sum += part[0] + part[1];
  }
};

// Of the lanes of a warp, in every lane.
__device__ inline Softmax warp_softmax(Softmax s) {
  float top = s.max;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
  s.raise(top);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) s.sum += __shfl_xor_sync(~0u, s.sum, step);
  return s;
}

// Of all blocks of the cluster, in every thread; merged in the same order everywhere. The peers have started
// before: shared memory of one that has not is nobody's. Lanes that have no warp or part to read hold
// nothing.
__device__ inline Softmax cluster_softmax(Softmax s) {
  __shared__ Softmax warps[kMaxThreads / 32];
  __shared__ Softmax parts[kMaxParts];
  const auto cluster = groups::this_cluster();
  s = warp_softmax(s);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x < 32) {
    s = warp_softmax(threadIdx.x < blockDim.x / 32 ? warps[threadIdx.x] : Softmax());
    if (threadIdx.x < cluster.num_blocks()) {
      *cluster.map_shared_rank(&parts[cluster.block_rank()], int(threadIdx.x)) = s;
    }
  }
  cluster.sync();
  const uint32_t lane = threadIdx.x % 32;
  return warp_softmax(lane < cluster.num_blocks() ? parts[lane] : Softmax());
}

// Adds kBatch words that lie a block's width apart, of which `left` words from the first on are there.
// kWhole: all of them, and nothing stands between their instructions.
template <bool kWhole, class T>
__device__ inline void add_batch(Softmax& s, const Pack<T, kVector<T>>* first, uint32_t left) {
  Pack<T, kVector<T>> words[kBatch];
  const auto there = [&](int k) { return kWhole || k * blockDim.x < left; };
  words[0] = first[0];
  Tops<T> tops = tops_of<T>(words[0]);
#pragma unroll
  for (int k = 1; k < kBatch; ++k) {
    if (!there(k)) continue;
    words[k] = first[k * blockDim.x];
    tops = larger(tops, tops_of<T>(words[k]));
  }
  s.raise(largest(tops));
#pragma unroll
  for (int k = 0; k < kBatch; ++k) {
    if (!there(k)) continue;
    float x[kVector<T>];
    unpack(words[k], x);
    s.add(x);
  }
}

// A thread copies the words it will read itself, so nothing but its own copies has to be waited for.
template <class T>
__device__ inline Softmax read_row(const Row<T>& row, Pack<T, kVector<T>>* kept, uint32_t kept_words) {
  Softmax s;
  const uint32_t copied = min(row.words, kept_words), batch = kBatch * blockDim.x;
  const auto copy_batch = [&](uint32_t base) {
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const uint32_t i = base + k * blockDim.x;
      if (i < copied) __pipeline_memcpy_async(kept + i, row.word(i), 16);
    }
    __pipeline_commit();
  };
  const auto add = [&](uint32_t base) {
    if (base + (kBatch - 1) * blockDim.x < copied) return add_batch<true, T>(s, kept + base, 0);
    if (base < copied) add_batch<false, T>(s, kept + base, copied - base);
  };
  for (uint32_t base = threadIdx.x; base < copied; base += 2 * batch) {
    copy_batch(base);
    copy_batch(base + batch);
    __pipeline_wait_prior(1);
    add(base);
    __pipeline_wait_prior(0);
    add(base + batch);
  }
  for (uint32_t i = copied + threadIdx.x; i < row.words; i += blockDim.x) {
    add_batch<false, T>(s, row.word(i), 1);
  }
  for (const int64_t i : {row.head_index(), row.tail_index()}) {
    if (i < 0) continue;
    const float edge[1] = {to_float(row.data[i])};
    s.raise(edge[0]);
    s.add(edge);
  }
  return s;
}

// Whether an element of this part that comes before `target` equals `max`.
template <class T>
__device__ inline bool found_before(const Row<T>& row, const Pack<T, kVector<T>>* kept, uint32_t kept_words,
                                    int64_t target, float max) {
  constexpr int N = kVector<T>;
  bool found = false;
  const int64_t first = row.head + int64_t(row.begin) * N;
  for (uint32_t i = threadIdx.x; i < row.words && first + int64_t(i) * N < target; i += blockDim.x) {
    float x[N];
    unpack(i < kept_words ? kept[i] : *row.word(i), x);
#pragma unroll
    for (int j = 0; j < N; ++j) found |= x[j] == max && first + int64_t(i) * N + j < target;
  }
  for (const int64_t i : {row.head_index(), row.tail_index()}) {
    found |= i >= 0 && i < target && to_float(row.data[i]) == max;
  }
  return found;
}

// In the first part's memory; contains barriers of the cluster.
__device__ inline bool any_in_cluster(bool mine) {
  __shared__ int flags[kMaxParts];
  const auto cluster = groups::this_cluster();
  const bool here = __syncthreads_or(mine);
  if (threadIdx.x == 0) *cluster.map_shared_rank(&flags[cluster.block_rank()], 0) = here;
  cluster.sync();
  bool any = false;
  if (cluster.block_rank() == 0) {
    for (uint32_t part = 0; part < cluster.num_blocks(); ++part) any |= flags[part] != 0;
  }
  return any;
}

template <class T>
__device__ inline void write_gradient(const Row<T>& row, const Pack<T, kVector<T>>* kept, uint32_t kept_words,
                                      float base, float factor) {
  constexpr int N = kVector<T>;
  const auto write = [&](uint32_t i, const Pack<T, N>& word) {
    float x[N];
    unpack(word, x);
#pragma unroll
    for (int j = 0; j < N; ++j) x[j] = exp2_fast(fmaf(x[j], kLog2e, -base)) * factor;
    store_once<N>(reinterpret_cast<T*>(row.word(i)), pack<T>(x));
  };
  uint32_t i = threadIdx.x;
#pragma unroll 4
  for (; i < min(row.words, kept_words); i += blockDim.x) write(i, kept[i]);
  for (; i < row.words; i += blockDim.x) write(i, *row.word(i));
  for (const int64_t i : {row.head_index(), row.tail_index()}) {
    if (i < 0) continue;
    row.data[i] = from_float<T>(exp2_fast(fmaf(to_float(row.data[i]), kLog2e, -base)) * factor);
  }
}

template <class T>
__global__ void __launch_bounds__(kMaxThreads, 3) cross_entropy_kernel(T* logits, CrossEntropyArgs a) {
  extern __shared__ uint4 shared[];
  auto* kept = reinterpret_cast<Pack<T, kVector<T>>*>(shared);
  const auto cluster = groups::this_cluster();
  auto started = cluster.barrier_arrive();
  const uint32_t part = cluster.block_rank();
  const int64_t r = blockIdx.x >> a.part_bits;
  const Row<T> row(logits + r * a.stride, a.width, part, a.part_bits);
  const int32_t target = a.targets[r];
  const Softmax mine = read_row(row, kept, a.kept);
  expect(target >= 0 && target < a.width);  // not before the row's copies are under way
  const float at_target = to_float(row.data[target]);
  cluster.barrier_wait(std::move(started));
  const Softmax s = cluster_softmax(mine);
  const float base = s.base();
  if (part == 0 && threadIdx.x == 0) {
    constexpr double kLn2 = 0.693147180559945309;
    a.losses[r] = float((log2(double(s.sum)) + double(base)) * kLn2 - double(at_target));
  }
  if (a.hits) {
    // The arg-max is the first of equal ones. Every block of the cluster comes to the same branch.
    const bool top = at_target == s.max;
    const bool hit = top && !any_in_cluster(found_before(row, kept, a.kept, target, s.max));
    if (part == 0 && threadIdx.x == 0) a.hits[r] = hit;
  }
  if (a.grad_scale == 0) return;
  write_gradient(row, kept, a.kept, base, a.grad_scale / s.sum);
  // The target's own element is p - 1: the thread that has just written its word corrects it.
  if (row.is_mine(target)) {
    const float p = exp2_fast(fmaf(at_target, kLog2e, -base)) / s.sum;
    row.data[target] = from_float<T>((p - 1.0f) * a.grad_scale);
  }
}

// Raises the limit of shared memory of every instantiation, once per device.
void allow_shared_memory() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  static std::mutex mutex;
  static uint64_t done = 0;
  const std::scoped_lock lock(mutex);
  if (done >> device & 1) return;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    dispatch_device(dtype, [&]<class T>() {
      check(cudaFuncSetAttribute(cross_entropy_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 kMaxKept),
            "cudaFuncSetAttribute");
    });
  }
  done |= uint64_t(1) << device;
}

template <class T>
void launch(cudaStream_t stream, const Tensor& logits, CrossEntropyArgs a) {
  const int64_t words = logits.cols / kVector<T>;
  const auto share_of = [&] { return div_ceil<int64_t>(words, int64_t(1) << a.part_bits); };
  while (a.part_bits < kMaxPartBits && share_of() * 16 > kPartBytes) ++a.part_bits;
  const uint32_t parts = 1u << a.part_bits;
  a.kept = uint32_t(std::min<int64_t>(share_of(), kMaxKept / 16));
  // Two batches of words for every thread, all under way at once: what a thread does once per row is little
  // beside that.
  const int64_t threads =
      std::clamp<int64_t>(round_up<int64_t>(div_ceil<int64_t>(share_of(), 2 * kBatch), 32), 128, kMaxThreads);
  ensure(logits.rows * parts < int64_t(1) << 31, "[cross_entropy] logits: got {} rows, expected less",
         logits.rows);
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {parts, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(uint32_t(logits.rows) * parts);
  config.blockDim = dim3(uint32_t(threads));
  config.dynamicSmemBytes = size_t(a.kept) * 16;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, cross_entropy_kernel<T>, pointer<T>(logits), a), "cross_entropy");
}

}  // namespace

void cross_entropy(StreamRef stream, const CrossEntropy& op) {
  const int64_t rows = op.logits.rows;
  ensure(op.targets.count() == rows, "[cross_entropy] targets: got {}, expected {}", op.targets.count(),
         rows);
  ensure(op.losses.count() == rows, "[cross_entropy] losses: got {}, expected {}", op.losses.count(), rows);
  ensure(!op.hits || op.hits.count() == rows, "[cross_entropy] hits: got {}, expected {}", op.hits.count(),
         rows);
  ensure(op.logits.cols < int64_t(1) << 31, "[cross_entropy] logits: got {} columns, expected less than 2^31",
         op.logits.cols);
  if (op.logits.count() == 0) return;
  allow_shared_memory();
  const CrossEntropyArgs a{.stride = op.logits.stride,
                           .width = op.logits.cols,
                           .targets = op.targets.as<int32_t>(),
                           .losses = op.losses.as<float>(),
                           .hits = op.hits ? op.hits.as<int32_t>() : nullptr,
                           .grad_scale = op.grad_scale};
  dispatch_device(op.logits.dtype, [&]<class T>() { launch<T>(native(stream), op.logits, a); });
}

}  // namespace zeno::cuda
