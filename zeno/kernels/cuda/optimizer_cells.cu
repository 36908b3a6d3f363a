// Updates with moments in cells (moment_cells.h): 16 threads go through a cell together, four elements each.
#include "zeno/base/math.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/optimizer_rule.h"
#include "zeno/kernels/moment_cells.h"
#include "zeno/kernels/moment_code.h"

namespace zeno::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kEach = 4;                             // elements of a thread: a word of codes
constexpr int kTeam = int(kMomentCell) / kEach;      // threads of a cell
constexpr int kWords = int(sizeof(MomentCell)) / 4;  // of a cell: its exponent, then the codes
static_assert(kWords == 1 + kTeam);

// Where a thread works.
struct Place {
  int64_t cell;
  int lane;       // of the team
  int64_t first;  // element
  int count;      // elements that are there, at most kEach
  bool in_cell;   // the cell is there; the last may have fewer elements than threads
  bool whole;     // all elements are there and may be read at once
};

__device__ inline Place place_of_thread(const UpdateArgs& a, bool aligned) {
  const int64_t thread = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t first = thread * kEach, rest = a.count - first;
  return {.cell = thread / kTeam,
          .lane = int(thread % kTeam),
          .first = first,
          .count = rest > kEach ? kEach : int(rest),
          .in_cell = thread / kTeam * kMomentCell < a.count,
          .whole = aligned && rest >= kEach};
}

// The elements of one array as they lie in memory: loading and converting are apart, so that all loads of a
// thread are on their way before the first is needed.
struct Raw {
  AnyPack<kEach> values;
  uint32_t codes, exponent;

  __device__ void load(const Array& from, const Place& place) {
    if (from.dtype != DType::u8) {
      if (place.whole) values.load(from, from.dtype, place.first);
    } else if (place.in_cell) {
      const uint32_t* const words = at<uint32_t>(from, place.cell * kWords);
      exponent = words[0];
      codes = words[1 + place.lane];
    }
  }
  template <StateRole kRole>
  __device__ void get(const Array& from, const Place& place, float (&x)[kEach]) const {
    if (from.dtype != DType::u8 && place.whole) return values.get(from.dtype, x);
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      x[k] = k < place.count ? one<kRole>(from, place, k) : 0;
    }
  }

 private:
  template <StateRole kRole>
  __device__ float one(const Array& from, const Place& place, int k) const {
    if (kRole != StateRole::master && from.dtype == DType::u8) {
      return MomentCode<kRole>::decode(uint8_t(codes >> 8 * k), exponent);
    }
    AnyPack<1> pack;
    float value[1];
    pack.load(from, from.dtype, place.first + k);
    pack.get(from.dtype, value);
    return value[0];
  }
};

__device__ inline void get_split(const UpdateArgs& a, const Place& place, const Raw& copies, const Raw& rests,
                                 float (&x)[kEach]) {
  if (place.whole) return join(copies.values, rests.values, x);
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int64_t i = place.first + k;
    x[k] = k < place.count
               ? __uint_as_float(joined_master(*at<uint16_t>(a.param, i), *at<int16_t>(a.master, i)))
               : 0;
  }
}

// All threads of the warp take part.
template <StateRole kRole>
__device__ inline void put_cell(const Array& to, const Place& place, const float (&x)[kEach],
                                const uint32_t (&noise)[kEach]) {
  using Code = MomentCode<kRole>;
  uint32_t largest = 0;
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    largest = max(largest, Code::rounded(__float_as_uint(x[k]) & 0x7fffffffu, Code::below(noise[k])));
  }
#pragma unroll
  for (int step = kTeam / 2; step > 0; step /= 2) {
    largest = max(largest, __shfl_xor_sync(~0u, largest, step));
  }
  const uint32_t exponent = Code::cell_exponent(largest);
  uint32_t codes = 0;
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    codes |= uint32_t(Code::encode(x[k], Code::below(noise[k]), exponent)) << 8 * k;
  }
  if (!place.in_cell) return;
  uint32_t* const words = at<uint32_t>(to, place.cell * kWords);
  words[1 + place.lane] = codes;
  if (place.lane == 0) words[0] = exponent;
}

template <StateRole kRole>
__device__ inline void put(const Array& to, const Place& place, float (&x)[kEach],
                           const uint32_t (&noise)[kEach]) {
  if constexpr (kRole != StateRole::master) {
    if (to.dtype == DType::u8) return put_cell<kRole>(to, place, x, noise);
  }
  if (place.whole) return put_state(to, place.first, x, noise, kRole);
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    if (k >= place.count) break;
    float value[1] = {x[k]};
    const uint32_t its[1] = {noise[k]};
    put_state(to, place.first + k, value, its, kRole);
    x[k] = value[0];
  }
}

__device__ inline void put_copy(const Array& to, const Place& place, const float (&x)[kEach]) {
  if (place.whole) return put_param(to, place.first, x);
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    if (k >= place.count) break;
    const float value[1] = {x[k]};
    put_param(to, place.first + k, value);
  }
}

template <Kind kKind>
__global__ void __launch_bounds__(kThreads) update_cells_kernel(UpdateArgs a, bool aligned) {
  const Place place = place_of_thread(a, aligned);
  Raw grads, masters, copies, ms, vs;
  const bool split = a.master.dtype == DType::i16;
  grads.load(a.grad, place);
  masters.load(a.master, place);
  if (split) copies.load(a.param, place);
  if (a.m.data) ms.load(a.m, place);
  if constexpr (kHasV<kKind>) vs.load(a.v, place);
  StepFactors factors = a.factors;
  factors.grad = *a.grad_factor;
  float g[kEach], p[kEach], m[kEach] = {}, v[kEach] = {};
  if (split) {
    get_split(a, place, copies, masters, p);
  } else {
    masters.get<StateRole::master>(a.master, place, p);
  }
  if (factors.grad == 0) {
    if (a.param.data && !split) put_copy(a.param, place, p);
    return;
  }
  grads.get<StateRole::master>(a.grad, place, g);
  if (a.m.data) ms.get<StateRole::m>(a.m, place, m);
  if constexpr (kHasV<kKind>) vs.get<StateRole::v>(a.v, place, v);
  uint32_t noise[kEach];
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    p[k] = stepped<kKind>(factors, __fmul_rn(g[k], factors.grad), p[k], m[k], v[k]);
    noise[k] = a.rounding.noise(a.first_index + place.first + k);
  }
  put<StateRole::master>(a.master, place, p, noise);
  if (a.m.data) put<StateRole::m>(a.m, place, m, noise);
  if constexpr (kHasV<kKind>) put<StateRole::v>(a.v, place, v, noise);
  if (a.param.data) put_copy(a.param, place, p);
}

}  // namespace

void launch_cell_update(cudaStream_t stream, Kind kind, const UpdateArgs& a) {
  const int64_t blocks = div_ceil<int64_t>(a.count, int64_t(kThreads) * kEach);
  ensure(blocks < int64_t(1) << 31, "[optimizer] master: got {} elements, expected less", a.count);
  bool aligned = true;
  for (const Array* array : {&a.grad, &a.master, &a.m, &a.v, &a.param}) {
    aligned &= array->dtype == DType::u8 || reinterpret_cast<uintptr_t>(array->data) % 16 == 0;
  }
  const auto launch = [&](auto kernel) {
    kernel<<<uint32_t(blocks), kThreads, 0, stream>>>(a, aligned);
    check_launch("optimizer_update");
  };
  switch (kind) {
    case Kind::adamw:
      return launch(update_cells_kernel<Kind::adamw>);
    case Kind::adam:
      return launch(update_cells_kernel<Kind::adam>);
    case Kind::sgd:
      return launch(update_cells_kernel<Kind::sgd>);
    case Kind::lion:
      return launch(update_cells_kernel<Kind::lion>);
  }
}

}  // namespace zeno::cuda
