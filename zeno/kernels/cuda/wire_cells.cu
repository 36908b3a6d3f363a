#include "zeno/kernels/wire_cells.h"

#include "zeno/base/math.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/vector.h"

namespace zeno::cuda {
namespace {

// A warp works on one cell, each thread on two neighbours.
constexpr int kWarp = 32, kThreads = 256, kCells = kThreads / kWarp;

__device__ inline int64_t cell_of_warp() {
  return int64_t(blockIdx.x) * kCells + int64_t(threadIdx.x) / kWarp;
}
__device__ inline int lane_of_warp() { return int(threadIdx.x) % kWarp; }

__device__ inline int code_of(float x, float scale, int limit) {
  if (!(scale > 0)) return 0;
  return max(-limit, min(limit, __float2int_rn(__fdiv_rn(x, scale))));
}

template <WireCode kCode, class T>
__global__ void __launch_bounds__(kThreads) encode_kernel(const T* x, unsigned char* cells, int64_t count) {
  const int64_t cell = cell_of_warp();
  const int lane = lane_of_warp();
  if (cell >= count) return;
  const T* const from = x + cell * kWireCell + 2 * lane;
  const float a = to_float(from[0]), b = to_float(from[1]);
  const int magnitudes = max(__float_as_int(a) & 0x7fffffff, __float_as_int(b) & 0x7fffffff);
  const int most = __reduce_max_sync(0xffffffffu, magnitudes);
  constexpr int kLimit = wire_limit(kCode), kInfinity = 0x7f800000;
  const float scale =
      most < kInfinity ? __fdiv_rn(__int_as_float(most), float(kLimit)) : __int_as_float(0x7fc00000);
  const int first = code_of(a, scale, kLimit), second = code_of(b, scale, kLimit);
  unsigned char* const to = cells + cell * int64_t(wire_cell_bytes(kCode));
  if constexpr (kCode == WireCode::int8) {
    *reinterpret_cast<char2*>(to + 2 * lane) =
        make_char2(static_cast<signed char>(first), static_cast<signed char>(second));
  } else {
    to[lane] = static_cast<unsigned char>((first & 15) | (second & 15) << 4);
  }
  if (lane == 0) *reinterpret_cast<float*>(to + wire_code_bytes(kCode)) = scale;
}

// This thread's two values of a cell.
template <WireCode kCode>
__device__ inline float2 decoded(const unsigned char* from, int lane) {
  const float scale = *reinterpret_cast<const float*>(from + wire_code_bytes(kCode));
  int first = 0, second = 0;
  if constexpr (kCode == WireCode::int8) {
    const char2 pair = *reinterpret_cast<const char2*>(from + 2 * lane);
    first = pair.x;
    second = pair.y;
  } else {
    const int pair = static_cast<signed char>(from[lane]);
    first = static_cast<int>(static_cast<unsigned int>(pair) << 28) >> 28;
    second = pair >> 4;
  }
  return make_float2(float(first) * scale, float(second) * scale);
}

template <WireCode kCode, class T>
__global__ void __launch_bounds__(kThreads) decode_kernel(const unsigned char* cells, T* y, int64_t count) {
  const int64_t cell = cell_of_warp();
  const int lane = lane_of_warp();
  if (cell >= count) return;
  const float2 x = decoded<kCode>(cells + cell * int64_t(wire_cell_bytes(kCode)), lane);
  T* const to = y + cell * kWireCell + 2 * lane;
  to[0] = from_float<T>(x.x);
  to[1] = from_float<T>(x.y);
}

__device__ inline float2 operator+(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }

// The binary counter of cpu/wire_cells.cpp.
template <WireCode kCode, class T>
__global__ void __launch_bounds__(kThreads)
    sum_kernel(const unsigned char* cells, int slices, T* y, int64_t count, bool accumulate) {
  const int64_t cell = cell_of_warp();
  const int lane = lane_of_warp();
  if (cell >= count) return;
  constexpr int64_t kBytes = int64_t(wire_cell_bytes(kCode));
  float2 partial[kWireLevels];
  int level = 0;
  for (int s = 0; s < slices; ++s) {
    float2 sum = decoded<kCode>(cells + (s * count + cell) * kBytes, lane);
    for (int left = s + 1; left % 2 == 0; left /= 2) sum = partial[--level] + sum;
    partial[level++] = sum;
  }
  float2 total = partial[--level];
  while (level > 0) total = partial[--level] + total;
  T* const to = y + cell * kWireCell + 2 * lane;
  if (accumulate) total = make_float2(to_float(to[0]), to_float(to[1])) + total;
  to[0] = from_float<T>(total.x);
  to[1] = from_float<T>(total.y);
}

template <class Body>
void for_code(WireCode code, const Body& body) {
  if (code == WireCode::int8) {
    body.template operator()<WireCode::int8>();
  } else {
    body.template operator()<WireCode::int4>();
  }
}

uint32_t blocks_of(int64_t cells) { return uint32_t(div_ceil(cells, int64_t(kCells))); }

}  // namespace

void wire_encode(StreamRef stream, WireCode code, Tensor x, std::byte* cells) {
  check_wire_cells("wire_encode", cells, x);
  const int64_t count = x.count() / kWireCell;
  if (count == 0) return;
  auto* const to = reinterpret_cast<unsigned char*>(cells);
  dispatch_device(x.dtype, [&]<class T>() {
    for_code(code, [&]<WireCode kCode>() {
      encode_kernel<kCode><<<blocks_of(count), kThreads, 0, native(stream)>>>(pointer<T>(x), to, count);
    });
    check_launch("wire_encode");
  });
}

void wire_decode(StreamRef stream, WireCode code, const std::byte* cells, Tensor y) {
  check_wire_cells("wire_decode", cells, y);
  const int64_t count = y.count() / kWireCell;
  if (count == 0) return;
  const auto* const from = reinterpret_cast<const unsigned char*>(cells);
  dispatch_device(y.dtype, [&]<class T>() {
    for_code(code, [&]<WireCode kCode>() {
      decode_kernel<kCode><<<blocks_of(count), kThreads, 0, native(stream)>>>(from, pointer<T>(y), count);
    });
    check_launch("wire_decode");
  });
}

void wire_sum(StreamRef stream, const WireSum& op) {
  check_wire_sum(op);
  const int64_t count = op.y.count() / kWireCell;
  if (count == 0) return;
  const auto* const from = reinterpret_cast<const unsigned char*>(op.cells);
  dispatch_device(op.y.dtype, [&]<class T>() {
    for_code(op.code, [&]<WireCode kCode>() {
      sum_kernel<kCode><<<blocks_of(count), kThreads, 0, native(stream)>>>(from, op.slices, pointer<T>(op.y),
                                                                           count, op.accumulate);
    });
    check_launch("wire_sum");
  });
}

}  // namespace zeno::cuda
