#include "zeno/kernels/attention_decode.h"

#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/vector.h"
#include "zeno/kernels/cuda/warp.h"

namespace zeno::cuda {
namespace {

// A block answers one query of one head. Its warps share out the keys, 32 at a time with one to each lane,
// and put their parts together at the end.
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;

struct DecodeArgs {
  int seq, heads, kv_heads, dim, window;
  float scale;
  int64_t qkv_stride, out_stride, tiles, capacity, sequences;
  const int32_t* positions;
  const int32_t* slots;

  // The first tile of a sequence's key/value head.
  __device__ int64_t first_tile(int row, int g) const {
    const int32_t slot = slots[row / seq];
    expect(slot >= 0 && slot < sequences);
    return (int64_t(slot) * kv_heads + g) * tiles;
  }
  __device__ int position(int row) const {
    const int32_t at = positions[row];
    expect(at >= 0 && at < capacity);
    return at;
  }
};

// One block per new token and key/value head, one thread per value.
template <class T>
__global__ void keep_kernel(DecodeArgs a, const T* qkv, T* keys, T* values) {
  const int row = int(blockIdx.x), g = int(blockIdx.y), position = a.position(row);
  const int64_t tile = (a.first_tile(row, g) + position / kCacheTile) * a.dim * kCacheTile;
  const int inside = position % int(kCacheTile);
  const T* from = qkv + row * a.qkv_stride + int64_t(a.heads + g) * a.dim;
  for (int c = int(threadIdx.x); c < a.dim; c += int(blockDim.x)) {
    keys[tile + int64_t(c) * kCacheTile + inside] = from[c];
    values[tile + int64_t(inside) * a.dim + c] = from[int64_t(a.kv_heads) * a.dim + c];
  }
}

// What a warp has gathered over its keys: Σ p·v of C columns per lane, relative to the maximum `top`.
template <int C>
struct Gathered {
  float sum[C] = {};
  float top = -INFINITY, mass = 0;
};

// The 32 keys from k0 on, of which the query sees [first, last].
template <class T, int C>
__device__ void attend(const DecodeArgs& a, const float* query, const T* keys, const T* values, int k0,
                       int first, int last, Gathered<C>& g) {
  const int lane = threadIdx.x % 32, key = k0 + lane;
  const int64_t tile = int64_t(k0 / kCacheTile) * a.dim * kCacheTile;
  const bool seen = key >= first && key <= last;
  float score = 0;
  if (seen) {
    const T* at = keys + tile + key % int(kCacheTile);
#pragma unroll 8
    for (int c = 0; c < a.dim; ++c) score = fmaf(query[c], to_float(at[int64_t(c) * kCacheTile]), score);
  }
  const float top = fmaxf(g.top, warp_max(seen ? score * a.scale : -INFINITY));
  if (top == -INFINITY) return;
  const float shrink = expf(g.top - top), p = seen ? expf(score * a.scale - top) : 0.0f;
  g.top = top;
  g.mass = g.mass * shrink + warp_sum(p);
#pragma unroll
  for (int i = 0; i < C; ++i) g.sum[i] *= shrink;
  const int from = max(first - k0, 0), to = min(last - k0, 31);
  for (int j = from; j <= to; ++j) {
    const float weight = __shfl_sync(~0u, p, j);
    const T* row = values + tile + int64_t((k0 + j) % int(kCacheTile)) * a.dim;
#pragma unroll
    for (int i = 0; i < C; ++i) {
      const int c = lane + 32 * i;
      if (c < a.dim) g.sum[i] = fmaf(weight, to_float(row[c]), g.sum[i]);
    }
  }
}

template <class T, int C>
__global__ void __launch_bounds__(kThreads)
    decode_kernel(DecodeArgs a, const T* qkv, const T* keys, const T* values, T* out) {
  extern __shared__ float shared[];
  float* query = shared;                // [D]
  float* sums = query + a.dim;          // [kWarps][D]
  float* tops = sums + kWarps * a.dim;  // [kWarps]
  float* masses = tops + kWarps;        // [kWarps]
  const int row = int(blockIdx.x), h = int(blockIdx.y), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t start = a.first_tile(row, h / (a.heads / a.kv_heads)) * a.dim * kCacheTile;
  const int last = a.position(row), first = a.window > 0 ? max(0, last - a.window + 1) : 0;
  for (int c = int(threadIdx.x); c < a.dim; c += kThreads)
    query[c] = to_float(qkv[row * a.qkv_stride + int64_t(h) * a.dim + c]);
  __syncthreads();
  Gathered<C> g;
  for (int k0 = (first / 32 + warp) * 32; k0 <= last; k0 += kWarps * 32)
    attend(a, query, keys + start, values + start, k0, first, last, g);
#pragma unroll
  for (int i = 0; i < C; ++i) {
    if (lane + 32 * i < a.dim) sums[warp * a.dim + lane + 32 * i] = g.sum[i];
  }
  if (lane == 0) tops[warp] = g.top, masses[warp] = g.mass;
  __syncthreads();
  float top = tops[0], mass = 0;
  for (int w = 1; w < kWarps; ++w) top = fmaxf(top, tops[w]);
  for (int w = 0; w < kWarps; ++w) mass += masses[w] * expf(tops[w] - top);
  for (int c = int(threadIdx.x); c < a.dim; c += kThreads) {
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += sums[w * a.dim + c] * expf(tops[w] - top);
    out[row * a.out_stride + int64_t(h) * a.dim + c] = from_float<T>(sum / mass);
  }
}

template <class T, int C>
void launch(cudaStream_t stream, const AttentionDecode& op, const DecodeArgs& args) {
  const T* qkv = pointer<T>(op.qkv);
  T *keys = pointer<T>(op.cache.keys), *values = pointer<T>(op.cache.values);
  const auto rows = unsigned(op.qkv.rows);
  keep_kernel<<<dim3(rows, unsigned(args.kv_heads)), 128, 0, stream>>>(args, qkv, keys, values);
  check_launch("attention_decode");
  const size_t shared = size_t((1 + kWarps) * args.dim + 2 * kWarps) * sizeof(float);
  decode_kernel<T, C><<<dim3(rows, unsigned(args.heads)), kThreads, shared, stream>>>(args, qkv, keys, values,
                                                                                      pointer<T>(op.out));
  check_launch("attention_decode");
}

}  // namespace

void attention_decode(StreamRef stream, const AttentionDecode& op) {
  check_attention_decode(op);
  if (op.qkv.rows == 0) return;
  const AttentionShape& s = op.shape;
  const int64_t tiles = cache_tiles(op.capacity);
  const DecodeArgs args{.seq = int(s.seq),
                        .heads = int(s.heads),
                        .kv_heads = int(s.kv_heads),
                        .dim = int(s.head_dim),
                        .window = int(s.window),
                        .scale = s.scale,
                        .qkv_stride = op.qkv.stride,
                        .out_stride = op.out.stride,
                        .tiles = tiles,
                        .capacity = op.capacity,
                        .sequences = op.cache.keys.rows / s.kv_heads / tiles,
                        .positions = op.positions.as<int32_t>(),
                        .slots = op.slots.as<int32_t>()};
  dispatch_device(op.qkv.dtype, [&]<class T>() {
    if (s.head_dim <= 64) return launch<T, 2>(native(stream), op, args);
    if (s.head_dim <= 128) return launch<T, 4>(native(stream), op, args);
    launch<T, 8>(native(stream), op, args);
  });
}

}  // namespace zeno::cuda
