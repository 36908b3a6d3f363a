#include "zeno/kernels/cross_entropy.h"

#include <algorithm>
#include <mutex>

#include "zeno/base/math.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/vector.h"

// A block per row. The first pass reads the row once, keeps as much of it as fits in shared memory, and takes
// the maximum and Σ exp(x - max) together, rescaling when the maximum grows. The second pass writes the
// gradient from what was kept; the rest of a very long row comes from L2, where the first pass has just left
// it.
namespace zeno::cuda {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kBatch = 4;  // words of 16 bytes a thread has on their way
// Bytes of shared memory, of the 227 KiB a block may have: all but the last tenth of 128k 16-bit logits.
constexpr int kMaxKept = 224 * 1024;

struct CrossEntropyArgs {
  int64_t stride, width;
  const int32_t* targets;
  float* losses;
  int32_t* hits;  // null: not wanted
  float grad_scale;
  uint32_t kept;  // words of a row kept in shared memory
};

// A row cut at 16-byte boundaries: up to N - 1 elements, whole words, up to N - 1 elements. The first threads
// of the block take the elements at both ends, one of each.
template <class T>
struct Row {
  static constexpr int N = kVector<T>;
  T* data;
  int64_t width;
  uint32_t head, tail;  // elements outside words
  uint32_t words;

  __device__ Row(T* at, int64_t count) : data(at), width(count) {
    const uint32_t misaligned = uint32_t(reinterpret_cast<uintptr_t>(at) % 16 / sizeof(T));
    head = misaligned == 0 ? 0 : N - misaligned;
    if (head > count) head = uint32_t(count);
    words = uint32_t((count - head) / N);
    tail = uint32_t(count - head - int64_t(words) * N);
  }
  __device__ T* word(uint32_t i) const { return data + head + int64_t(i) * N; }
  // Index of this thread's element at the head or the tail; -1: none.
  __device__ int64_t head_index() const { return threadIdx.x < head ? int64_t(threadIdx.x) : -1; }
  __device__ int64_t tail_index() const { return threadIdx.x < tail ? width - tail + threadIdx.x : -1; }
};

// Running maximum and Σ exp(x - max).
struct Softmax {
  float max = -INFINITY, sum = 0;

  __device__ void raise(float to) {
    if (to > max) {
      sum *= __expf(max - to);
      max = to;
    }
  }
  template <int N>
  __device__ void add(const float (&x)[N]) {
    float top = x[0];
#pragma unroll
    for (int i = 1; i < N; ++i) top = fmaxf(top, x[i]);
    raise(top);
    const float base = max == -INFINITY ? 0 : max;  // nothing but -inf so far: every term is 0
    float part = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) part += __expf(x[i] - base);
    sum += part;
  }
  __device__ void merge(const Softmax& other) {
    const float top = fmaxf(max, other.max);
    // A thread without elements has max = -inf and sum 0: exp(-inf - top) is 0 unless top is -inf too.
    const float mine = max == top ? 1.0f : __expf(max - top);
    const float theirs = other.max == top ? 1.0f : __expf(other.max - top);
    sum = sum * mine + other.sum * theirs;
    max = top;
  }
};

// The same value in all threads. Contains barriers.
__device__ inline Softmax block_softmax(Softmax s) {
  __shared__ Softmax slots[kMaxThreads / 32];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    Softmax other;
    other.max = __shfl_xor_sync(~0u, s.max, step);
    other.sum = __shfl_xor_sync(~0u, s.sum, step);
    s.merge(other);
  }
  if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = s;
  __syncthreads();
  s = slots[0];
  for (uint32_t warp = 1; warp < blockDim.x / 32; ++warp) s.merge(slots[warp]);
  return s;
}

template <class T>
__device__ inline Softmax read_row(const Row<T>& row, Pack<T, kVector<T>>* kept, uint32_t kept_words) {
  constexpr int N = kVector<T>;
  Softmax s;
  float x[N];
  for (uint32_t base = threadIdx.x; base < row.words; base += kBatch * blockDim.x) {
    Pack<T, N> words[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const uint32_t i = base + k * blockDim.x;
      if (i < row.words) words[k] = load<N>(row.word(i));
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const uint32_t i = base + k * blockDim.x;
      if (i >= row.words) continue;
      if (i < kept_words) kept[i] = words[k];
      unpack(words[k], x);
      s.add(x);
    }
  }
  for (const int64_t i : {row.head_index(), row.tail_index()}) {
    if (i < 0) continue;
    const float edge[1] = {to_float(row.data[i])};
    s.add(edge);
  }
  return s;
}

// Whether an element before `target` equals `max`. All threads call it; contains a barrier.
template <class T>
__device__ inline bool found_before(const Row<T>& row, int64_t target, float max) {
  bool found = false;
  for (int64_t i = threadIdx.x; i < target; i += blockDim.x) found |= to_float(row.data[i]) == max;
  return __syncthreads_or(found);
}

template <class T>
__device__ inline void write_gradient(const Row<T>& row, const Pack<T, kVector<T>>* kept, uint32_t kept_words,
                                      float max, float factor) {
  constexpr int N = kVector<T>;
  for (uint32_t base = threadIdx.x; base < row.words; base += kBatch * blockDim.x) {
    Pack<T, N> words[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const uint32_t i = base + k * blockDim.x;
      if (i < row.words) words[k] = i < kept_words ? kept[i] : load<N>(row.word(i));
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const uint32_t i = base + k * blockDim.x;
      if (i >= row.words) continue;
      float x[N];
      unpack(words[k], x);
#pragma unroll
      for (int j = 0; j < N; ++j) x[j] = __expf(x[j] - max) * factor;
      store<N>(row.word(i), pack<T>(x));
    }
  }
  for (const int64_t i : {row.head_index(), row.tail_index()}) {
    if (i >= 0) row.data[i] = from_float<T>(__expf(to_float(row.data[i]) - max) * factor);
  }
}

template <class T>
__global__ void __launch_bounds__(kMaxThreads) cross_entropy_kernel(T* logits, CrossEntropyArgs a) {
  extern __shared__ uint4 shared[];
  auto* kept = reinterpret_cast<Pack<T, kVector<T>>*>(shared);
  const int64_t r = blockIdx.x;
  const Row<T> row(logits + r * a.stride, a.width);
  const int32_t target = a.targets[r];
  expect(target >= 0 && target < a.width);
  const float at_target = to_float(row.data[target]);
  const Softmax s = block_softmax(read_row(row, kept, a.kept));
  if (threadIdx.x == 0) a.losses[r] = float(log(double(s.sum)) + (double(s.max) - double(at_target)));
  if (a.hits) {
    // The arg-max is the first of equal ones.
    const bool top = at_target == s.max;
    const bool hit = top && !found_before(row, target, s.max);
    if (threadIdx.x == 0) a.hits[r] = hit;
  }
  if (a.grad_scale == 0) return;
  write_gradient(row, kept, a.kept, s.max, a.grad_scale / s.sum);
  __syncthreads();  // the target's own element is p - 1, whoever wrote its word
  if (threadIdx.x == 0) {
    row.data[target] = from_float<T>((__expf(at_target - s.max) / s.sum - 1.0f) * a.grad_scale);
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
  dispatch_device(op.logits.dtype, [&]<class T>() {
    const int64_t words = op.logits.cols / kVector<T>;
    const int64_t kept = op.grad_scale == 0 ? 0 : std::min<int64_t>(words, kMaxKept / 16);
    // A batch of words for every thread; blocks of short rows share a processor.
    const int threads =
        int(std::clamp<int64_t>(round_up<int64_t>(div_ceil<int64_t>(words, kBatch), 32), 128, kMaxThreads));
    const CrossEntropyArgs a{.stride = op.logits.stride,
                             .width = op.logits.cols,
                             .targets = op.targets.as<int32_t>(),
                             .losses = op.losses.as<float>(),
                             .hits = op.hits ? op.hits.as<int32_t>() : nullptr,
                             .grad_scale = op.grad_scale,
                             .kept = uint32_t(kept)};
    cross_entropy_kernel<<<uint32_t(rows), threads, size_t(kept) * 16, native(stream)>>>(
        pointer<T>(op.logits), a);
    check_launch("cross_entropy");
  });
}

}  // namespace zeno::cuda
