#include "zeno/kernels/wire_cells.h"

#include <bit>
#include <cstring>
#include <limits>

#include "zeno/base/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeno/kernels/cpu/wire_cells.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "zeno/kernels/cpu/simd_lanes.h"

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {

using IntTag = hn::RebindToSigned<FloatTag>;

// The largest magnitude, as bits: those of NaN are above those of all numbers.
template <class T>
HWY_INLINE int32_t largest_bits(const T* x) {
  const FloatTag d;
  const IntTag di;
  auto most = hn::Zero(di);
  for_lanes(d, kWireCell, [&](int64_t i, auto lanes) HWY_ATTR {
    const auto bits = hn::BitCast(di, load(d, x + i, lanes));
    most = hn::Max(most, hn::And(bits, hn::Set(di, 0x7fffffff)));
  });
  return hn::GetLane(hn::MaxOfLanes(di, most));
}

template <class T>
HWY_INLINE float encode_cell(WireCode code, const T* x, int8_t* codes) {
  const FloatTag d;
  const IntTag di;
  constexpr int32_t kInfinity = 0x7f800000;
  const int32_t bits = largest_bits(x);
  const int limit = wire_limit(code);
  const float scale =
      bits < kInfinity ? std::bit_cast<float>(bits) / float(limit) : std::numeric_limits<float>::quiet_NaN();
  if (!(scale > 0)) {
    std::memset(codes, 0, size_t(kWireCell));
    return scale;
  }
  for_lanes(d, kWireCell, [&](int64_t i, auto lanes) HWY_ATTR {
    const auto steps = hn::NearestInt(hn::Div(load(d, x + i, lanes), hn::Set(d, scale)));
    const auto within = hn::Clamp(steps, hn::Set(di, -limit), hn::Set(di, limit));
    store_raw(d, hn::DemoteTo(hn::Rebind<int8_t, FloatTag>(), within), codes + i, lanes);
  });
  return scale;
}

void encode_cells(WireCode code, const Tensor& x, std::byte* cells, int64_t begin, int64_t end) {
  const size_t bytes = wire_cell_bytes(code), code_bytes = wire_code_bytes(code);
  dispatch_float(x.dtype, [&]<class T>() HWY_ATTR {
    HWY_ALIGN int8_t codes[kWireCell];
    for (int64_t i = begin; i < end; ++i) {
      std::byte* const cell = cells + size_t(i) * bytes;
      const float scale = encode_cell(code, x.as<T>() + i * kWireCell, codes);
      if (code == WireCode::int4) {
        for (int64_t k = 0; k < kWireCell / 2; ++k)
          codes[k] = int8_t((codes[2 * k] & 15) | (codes[2 * k + 1] & 15) << 4);
      }
      std::memcpy(cell, codes, code_bytes);
      std::memcpy(cell + code_bytes, &scale, sizeof scale);
    }
  });
}

HWY_INLINE void unpack_codes(WireCode code, const std::byte* cell, int8_t* codes) {
  if (code == WireCode::int8) {
    std::memcpy(codes, cell, size_t(kWireCell));
    return;
  }
  for (int64_t k = 0; k < kWireCell / 2; ++k) {
    const auto pair = int8_t(cell[k]);
    codes[2 * k] = int8_t(int8_t(uint8_t(pair) << 4) >> 4);
    codes[2 * k + 1] = int8_t(pair >> 4);
  }
}

void decode_cells(WireCode code, const std::byte* cells, const Tensor& y, int64_t begin, int64_t end) {
  const FloatTag d;
  const IntTag di;
  const size_t bytes = wire_cell_bytes(code), code_bytes = wire_code_bytes(code);
  dispatch_float(y.dtype, [&]<class T>() HWY_ATTR {
    HWY_ALIGN int8_t codes[kWireCell];
    for (int64_t i = begin; i < end; ++i) {
      const std::byte* const cell = cells + size_t(i) * bytes;
      float scale = 0;
      std::memcpy(&scale, cell + code_bytes, sizeof scale);
      unpack_codes(code, cell, codes);
      T* const to = y.as<T>() + i * kWireCell;
      for_lanes(d, kWireCell, [&](int64_t k, auto lanes) HWY_ATTR {
        const auto steps = hn::ConvertTo(d, hn::PromoteTo(di, load_raw(d, codes + k, lanes)));
        store(d, hn::Mul(steps, hn::Set(d, scale)), to + k, lanes);
      });
    }
  });
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeno {
namespace {

HWY_EXPORT(encode_cells);
HWY_EXPORT(decode_cells);

constexpr int64_t kGrain = 512;  // cells per task

}  // namespace

void check_wire_cells(std::string_view kernel, const std::byte* cells, const Tensor& values) {
  ensure(values.count() % kWireCell == 0 && values.contiguous(),
         "[{}] got {} x {} with stride {}, expected whole cells", kernel, values.rows, values.cols,
         values.stride);
  ensure(reinterpret_cast<uintptr_t>(cells) % sizeof(float) == 0, "[{}] got unaligned cells", kernel);
}

namespace cpu {

void wire_encode(StreamRef stream, WireCode code, Tensor x, std::byte* cells) {
  check_wire_cells("wire_encode", cells, x);
  stream.launch([=](Workers& workers) {
    workers.for_ranges(x.count() / kWireCell, kGrain, [&](int64_t begin, int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(encode_cells)(code, x, cells, begin, end);
    });
  });
}

void wire_decode(StreamRef stream, WireCode code, const std::byte* cells, Tensor y) {
  check_wire_cells("wire_decode", cells, y);
  stream.launch([=](Workers& workers) {
    workers.for_ranges(y.count() / kWireCell, kGrain, [&](int64_t begin, int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(decode_cells)(code, cells, y, begin, end);
    });
  });
}

}  // namespace cpu
}  // namespace zeno
#endif  // HWY_ONCE
