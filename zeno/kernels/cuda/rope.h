// What the forward and the backward kernels of rope and QK-norm share: a team of neighbouring threads (a
// power of two, within a warp) owns the heads `place`, `place + teams`, ... of a row, kHeads of them. Each
// thread holds the same N pairs of every one: elements [at, at + N) of the first half and their partners in
// the second.
#pragma once

#include "zeno/kernels/cuda/norm.h"
#include "zeno/kernels/cuda/vector.h"
#include "zeno/kernels/rope.h"

namespace zeno::cuda {

inline constexpr int kHeadThreads = 256;

// The mapping of heads to the threads of a block.
struct HeadGrid {
  int half = 0;       // head_dim / 2
  int team = 1;       // threads per head
  int team_bits = 0;  // log2 of it
};

template <class T>
HeadGrid head_grid(int64_t head_dim) {
  HeadGrid grid{.half = int(head_dim / 2)};
  while (grid.team * kVector<T> < grid.half) grid.team *= 2, ++grid.team_bits;
  ensure(grid.team <= 32, "[rope] head_dim: got {}, expected at most {}", head_dim, 64 * kVector<T>);
  return grid;
}

// `count` values, the others 0. kWhole: `count` is N and 16-byte accesses are possible.
template <bool kWhole, int N, class T>
__device__ inline Pack<T, N> load_part(const T* from, int count) {
  if constexpr (kWhole) return load<N>(from);
  Pack<T, N> part = {};
  T* values = reinterpret_cast<T*>(part.words);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i < count) values[i] = from[i];
  }
  return part;
}

template <bool kWhole, int N, class T>
__device__ inline void store_part(T* to, const Pack<T, N>& part, int count) {
  if constexpr (kWhole) return store_whole<N>(to, part);
  const T* values = reinterpret_cast<const T*>(part.words);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i < count) to[i] = values[i];
  }
}

// A thread's pairs of one head.
template <class T>
struct Pairs {
  static constexpr int N = kVector<T>;
  Pack<T, N> first = {}, second = {};

  template <bool kWhole>
  __device__ void fetch(const T* at, int half, int count) {
    first = load_part<kWhole, N>(at, count);
    second = load_part<kWhole, N>(at + half, count);
  }
  template <bool kWhole>
  __device__ void put(T* at, int half, int count) const {
    store_part<kWhole, N>(at, first, count);
    store_part<kWhole, N>(at + half, second, count);
  }
};

struct Angles {
  const int32_t* positions;
  const float* table;
  int64_t rows, stride;
};

// Cosines and sines of a thread's pairs at the position of a row.
template <class T>
struct Turn {
  static constexpr int N = kVector<T>;
  float cosine[N] = {}, sine[N] = {};

  template <bool kWhole>
  __device__ void fetch(const Angles& a, int64_t row, int at, int half, int count) {
    const int32_t position = a.positions[row];
    expect(position >= 0 && position < a.rows);
    const float* angles = a.table + position * a.stride + at;
    unpack(load_part<kWhole, N>(angles, count), cosine);
    unpack(load_part<kWhole, N>(angles + half, count), sine);
  }
  __device__ void apply(Pairs<T>& pairs, float direction) const {
    float p[N], q[N];
    unpack(pairs.first, p);
    unpack(pairs.second, q);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float s = sine[i] * direction;
      const float turned = fmaf(-q[i], s, p[i] * cosine[i]);
      q[i] = fmaf(p[i], s, q[i] * cosine[i]);
      p[i] = turned;
    }
    pairs = {pack<T>(p), pack<T>(q)};
  }
};

// weight[at .. at + count), whichever of the two dtypes it has.
template <bool kWhole, class T, int N>
__device__ inline void load_weight_part(const void* weight, bool is_float, int at, int count, float (&w)[N]) {
  if (is_float) {
    unpack(load_part<kWhole, N>(static_cast<const float*>(weight) + at, count), w);
  } else {
    unpack(load_part<kWhole, N>(static_cast<const T*>(weight) + at, count), w);
  }
}

// The forward kernel with its angles times `direction`.
void rope_turn(StreamRef stream, const RopeForward& op, float direction);

}  // namespace zeno::cuda
