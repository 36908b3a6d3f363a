#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "zeno/base/math.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/attention/attention_plain.h"
#include "zeno/kernels/cuda/vector.h"
#include "zeno/kernels/cuda/warp.h"

namespace zeno::cuda {
namespace {

// A block owns a tile of kTile rows (queries, or keys for their gradients), kRows to each warp, and walks
// over tiles of kTile rows of the other side in shared memory, one to each lane.
constexpr int kTile = 32;
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kRows = kTile / kWarps;

struct Shape {
  int seq, heads, group, dim, window;
  float scale;
  const int32_t* doc_start;  // [B·T] or null

  __device__ int first_key(int64_t b, int q) const {
    int first = doc_start != nullptr ? doc_start[b * seq + q] : 0;
    if (window > 0) first = max(first, q - window + 1);
    return min(max(first, 0), q);
  }
  // The first key that any query of the tile sees; the same in every lane.
  __device__ int first_key_of_tile(int64_t b, int q0) const {
    const int q = min(q0 + int(threadIdx.x % 32), seq - 1);
    return __reduce_min_sync(~0u, first_key(b, q));
  }
};

// A matrix in global memory: rows of one sequence and head.
template <class T>
struct Rows {
  T* data;
  int64_t stride;
  __device__ T* row(int64_t i) const { return data + i * stride; }
};

// A tile in shared memory, fp32. The odd stride keeps lanes that read a column apart.
struct Tile {
  float* data;
  int stride;
  __device__ float* row(int i) const { return data + i * stride; }
};

__device__ Tile carve(float*& shared, int dim) {
  const Tile tile{shared, dim + 1};
  shared += kTile * (dim + 1);
  return tile;
}

template <class T>
__device__ void load_tile(const Rows<const T>& from, int begin, int rows, int dim, const Tile& to) {
  for (int i = threadIdx.x; i < kTile * dim; i += kThreads) {
    const int r = i / dim, c = i % dim;
    to.row(r)[c] = begin + r < rows ? to_float(from.row(begin + r)[c]) : 0.0f;
  }
}

__device__ float dot(const float* a, const float* b, int n) {
  float sum = 0;
#pragma unroll 8
  for (int i = 0; i < n; ++i) sum = fmaf(a[i], b[i], sum);
  return sum;
}

// sum[i] += Σ over lanes of weight · tile[lane][column i of this lane]; C columns per lane.
template <int C>
__device__ void add_weighted(float weight, const Tile& tile, int dim, float (&sum)[C]) {
  const int lane = threadIdx.x % 32;
#pragma unroll 4
  for (int j = 0; j < kTile; ++j) {
    const float w = __shfl_sync(~0u, weight, j);
#pragma unroll
    for (int i = 0; i < C; ++i) {
      const int c = lane + 32 * i;
      if (c < dim) sum[i] = fmaf(w, tile.row(j)[c], sum[i]);
    }
  }
}

template <int C, class T>
__device__ void store_row(const float (&sum)[C], float factor, int dim, T* to) {
#pragma unroll
  for (int i = 0; i < C; ++i) {
    const int c = threadIdx.x % 32 + 32 * i;
    if (c < dim) to[c] = from_float<T>(sum[i] * factor);
  }
}

// Where one block finds its heads in the packed matrices.
template <class T>
__device__ Rows<T> head_of(T* packed, int64_t stride, const Shape& s, int64_t b, int index) {
  return {packed + b * s.seq * stride + int64_t(index) * s.dim, stride};
}

template <class T, int C>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(Shape s, const T* qkv, int64_t stride, T* out, int64_t out_stride, float* lse) {
  extern __shared__ float shared[];
  float* at = shared;
  const Tile queries = carve(at, s.dim), keys = carve(at, s.dim), values = carve(at, s.dim);
  const int q0 = int(gridDim.x - 1 - blockIdx.x) * kTile, h = int(blockIdx.y);  // the long ones first
  const int64_t b = blockIdx.z;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, kv = s.heads + h / s.group;
  load_tile(head_of(qkv, stride, s, b, h), q0, s.seq, s.dim, queries);
  float sum[kRows][C] = {}, top[kRows], mass[kRows] = {};
  for (float& x : top) x = -INFINITY;
  const int end = min(q0 + kTile, s.seq);
  for (int k0 = s.first_key_of_tile(b, q0) / kTile * kTile; k0 < end; k0 += kTile) {
    __syncthreads();
    load_tile(head_of(qkv, stride, s, b, kv), k0, s.seq, s.dim, keys);
    load_tile(head_of(qkv, stride, s, b, kv + s.heads / s.group), k0, s.seq, s.dim, values);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = warp * kRows + r, q = q0 + row, k = k0 + lane;
      if (q >= s.seq) continue;
      const bool visible = k <= q && k >= s.first_key(b, q);
      const float score = visible ? dot(queries.row(row), keys.row(lane), s.dim) * s.scale : -INFINITY;
      const float best = fmaxf(top[r], warp_max(score));
      if (best == -INFINITY) continue;  // nothing seen yet
      const float shrink = expf(top[r] - best), p = expf(score - best);
      mass[r] = fmaf(mass[r], shrink, warp_sum(p));
      top[r] = best;
#pragma unroll
      for (float& x : sum[r]) x *= shrink;
      add_weighted(p, values, s.dim, sum[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int q = q0 + warp * kRows + r;
    if (q >= s.seq) continue;
    store_row(sum[r], 1 / mass[r], s.dim, head_of(out, out_stride, s, b, h).row(q));
    if (lane == 0) lse[(b * s.heads + h) * s.seq + q] = top[r] + logf(mass[r]);
  }
}

// What both gradient kernels read.
template <class T>
struct Gradients {
  const T *qkv, *out, *dout;
  T* dqkv;
  int64_t stride, out_stride, dout_stride, dqkv_stride;
  const float* lse;
  float* delta;  // Σ dO·O of each query
};

// P and dS of one pair of query and key.
struct Pair {
  float p, ds;
};
__device__ Pair pair_of(const Shape& s, const float* query, const float* key, const float* dout,
                        const float* value, float lse, float delta) {
  const float p = expf(fmaf(dot(query, key, s.dim), s.scale, -lse));
  return {p, p * (dot(dout, value, s.dim) - delta) * s.scale};
}

template <class T, int C>
__global__ void __launch_bounds__(kThreads) query_gradient_kernel(Shape s, Gradients<T> g) {
  extern __shared__ float shared[];
  float* at = shared;
  const Tile queries = carve(at, s.dim), douts = carve(at, s.dim), keys = carve(at, s.dim),
             values = carve(at, s.dim);
  const int q0 = int(gridDim.x - 1 - blockIdx.x) * kTile, h = int(blockIdx.y);
  const int64_t b = blockIdx.z, head = (b * s.heads + h) * s.seq;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, kv = s.heads + h / s.group;
  load_tile(head_of(g.qkv, g.stride, s, b, h), q0, s.seq, s.dim, queries);
  load_tile(head_of(g.dout, g.dout_stride, s, b, h), q0, s.seq, s.dim, douts);
  load_tile(head_of(g.out, g.out_stride, s, b, h), q0, s.seq, s.dim, keys);
  __syncthreads();
  float sum[kRows][C] = {}, delta[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row = warp * kRows + r;
    float product = 0;
    for (int c = lane; c < s.dim; c += 32) product = fmaf(douts.row(row)[c], keys.row(row)[c], product);
    delta[r] = warp_sum(product);
    if (lane == 0 && q0 + row < s.seq) g.delta[head + q0 + row] = delta[r];
  }
  const int end = min(q0 + kTile, s.seq);
  for (int k0 = s.first_key_of_tile(b, q0) / kTile * kTile; k0 < end; k0 += kTile) {
    __syncthreads();
    load_tile(head_of(g.qkv, g.stride, s, b, kv), k0, s.seq, s.dim, keys);
    load_tile(head_of(g.qkv, g.stride, s, b, kv + s.heads / s.group), k0, s.seq, s.dim, values);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = warp * kRows + r, q = q0 + row, k = k0 + lane;
      if (q >= s.seq) continue;
      float ds = 0;
      if (k <= q && k >= s.first_key(b, q)) {
        ds = pair_of(s, queries.row(row), keys.row(lane), douts.row(row), values.row(lane), g.lse[head + q],
                     delta[r])
                 .ds;
      }
      add_weighted(ds, keys, s.dim, sum[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int q = q0 + warp * kRows + r;
    if (q < s.seq) store_row(sum[r], 1, s.dim, head_of(g.dqkv, g.dqkv_stride, s, b, h).row(q));
  }
}

// dK and dV of a tile of keys: over the query heads of the group, then over the queries, in order.
template <class T, int C>
__global__ void __launch_bounds__(kThreads) key_gradient_kernel(Shape s, Gradients<T> g) {
  extern __shared__ float shared[];
  float* at = shared;
  const Tile keys = carve(at, s.dim), values = carve(at, s.dim), queries = carve(at, s.dim),
             douts = carve(at, s.dim);
  const int k0 = int(blockIdx.x) * kTile, kv_heads = s.heads / s.group;
  const int64_t b = blockIdx.z;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, kv = s.heads + int(blockIdx.y);
  load_tile(head_of(g.qkv, g.stride, s, b, kv), k0, s.seq, s.dim, keys);
  load_tile(head_of(g.qkv, g.stride, s, b, kv + kv_heads), k0, s.seq, s.dim, values);
  float dkey[kRows][C] = {}, dvalue[kRows][C] = {};
  const int last_key = min(k0 + kTile, s.seq) - 1;
  const int end = s.window > 0 ? min(s.seq, last_key + s.window) : s.seq;
  for (int h = int(blockIdx.y) * s.group; h < int(blockIdx.y + 1) * s.group; ++h) {
    const int64_t head = (b * s.heads + h) * s.seq;
    for (int q0 = k0; q0 < end; q0 += kTile) {
      if (s.first_key_of_tile(b, q0) > last_key) continue;  // the same in every thread
      __syncthreads();
      load_tile(head_of(g.qkv, g.stride, s, b, h), q0, s.seq, s.dim, queries);
      load_tile(head_of(g.dout, g.dout_stride, s, b, h), q0, s.seq, s.dim, douts);
      __syncthreads();
      const int q = q0 + lane;
      const int first = q < s.seq ? s.first_key(b, q) : s.seq;
      const float lse = q < s.seq ? g.lse[head + q] : 0, delta = q < s.seq ? g.delta[head + q] : 0;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int row = warp * kRows + r, k = k0 + row;
        Pair pair{0, 0};
        if (k <= q && k >= first)
          pair = pair_of(s, queries.row(lane), keys.row(row), douts.row(lane), values.row(row), lse, delta);
        add_weighted(pair.p, douts, s.dim, dvalue[r]);
        add_weighted(pair.ds, queries, s.dim, dkey[r]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int k = k0 + warp * kRows + r;
    if (k >= s.seq) continue;
    store_row(dkey[r], 1, s.dim, head_of(g.dqkv, g.dqkv_stride, s, b, kv).row(k));
    store_row(dvalue[r], 1, s.dim, head_of(g.dqkv, g.dqkv_stride, s, b, kv + kv_heads).row(k));
  }
}

Shape shape_of(const AttentionShape& s, const Tensor& doc_start) {
  return {.seq = int(s.seq),
          .heads = int(s.heads),
          .group = int(s.heads / s.kv_heads),
          .dim = int(s.head_dim),
          .window = s.window < s.seq ? int(s.window) : 0,  // wider than the sequence: no limit
          .scale = s.scale,
          .doc_start = doc_start ? doc_start.as<int32_t>() : nullptr};
}

size_t shared_bytes(int tiles, int64_t dim) {
  return size_t(tiles * kTile) * size_t(dim + 1) * sizeof(float);
}

// Tiles of wide heads exceed what a kernel gets without asking.
template <class Kernel, class... Args>
void launch(Kernel* kernel, dim3 grid, size_t shared, cudaStream_t stream, const char* name, Args... args) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)), name);
  kernel<<<grid, kThreads, shared, stream>>>(args...);
  check_launch(name);
}

// Columns per lane, a few sizes only.
template <class F>
void with_columns(int64_t dim, F&& f) {
  if (dim <= 128) return f.template operator()<4>();
  f.template operator()<8>();
}

}  // namespace

void plain_attention_forward(cudaStream_t stream, const AttentionForward& op) {
  const AttentionShape& s = op.shape;
  const dim3 grid(unsigned(div_ceil<int64_t>(s.seq, kTile)), unsigned(s.heads), unsigned(s.batch));
  dispatch_device(op.qkv.dtype, [&]<class T>() {
    with_columns(s.head_dim, [&]<int C>() {
      launch(forward_kernel<T, C>, grid, shared_bytes(3, s.head_dim), stream, "attention_forward",
             shape_of(s, op.doc_start), pointer<const T>(op.qkv), op.qkv.stride, pointer<T>(op.out),
             op.out.stride, pointer<float>(op.lse));
    });
  });
}

void plain_attention_backward(cudaStream_t stream, const AttentionBackward& op, float* delta) {
  const AttentionShape& s = op.shape;
  const unsigned tiles = unsigned(div_ceil<int64_t>(s.seq, kTile));
  dispatch_device(op.qkv.dtype, [&]<class T>() {
    const Gradients<T> g{.qkv = pointer<const T>(op.qkv),
                         .out = pointer<const T>(op.out),
                         .dout = pointer<const T>(op.dout),
                         .dqkv = pointer<T>(op.dqkv),
                         .stride = op.qkv.stride,
                         .out_stride = op.out.stride,
                         .dout_stride = op.dout.stride,
                         .dqkv_stride = op.dqkv.stride,
                         .lse = pointer<const float>(op.lse),
                         .delta = delta};
    with_columns(s.head_dim, [&]<int C>() {
      const size_t shared = shared_bytes(4, s.head_dim);
      launch(query_gradient_kernel<T, C>, dim3(tiles, unsigned(s.heads), unsigned(s.batch)), shared, stream,
             "attention_backward queries", shape_of(s, op.doc_start), g);
      launch(key_gradient_kernel<T, C>, dim3(tiles, unsigned(s.kv_heads), unsigned(s.batch)), shared, stream,
             "attention_backward keys", shape_of(s, op.doc_start), g);
    });
  });
}

}  // namespace zeno::cuda
