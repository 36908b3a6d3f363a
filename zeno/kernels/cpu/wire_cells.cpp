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

template <class T>
HWY_INLINE void decode_cell(WireCode code, const std::byte* cell, T* to) {
  const FloatTag d;
  const IntTag di;
  float scale = 0;
  std::memcpy(&scale, cell + wire_code_bytes(code), sizeof scale);
  HWY_ALIGN int8_t codes[kWireCell];
  unpack_codes(code, cell, codes);
  for_lanes(d, kWireCell, [&](int64_t k, auto lanes) HWY_ATTR {
    const auto steps = hn::ConvertTo(d, hn::PromoteTo(di, load_raw(d, codes + k, lanes)));
    store(d, hn::Mul(steps, hn::Set(d, scale)), to + k, lanes);
  });
}

void decode_cells(WireCode code, const std::byte* cells, const Tensor& y, int64_t begin, int64_t end) {
  const size_t bytes = wire_cell_bytes(code);
  dispatch_float(y.dtype, [&]<class T>() HWY_ATTR {
    for (int64_t i = begin; i < end; ++i)
      decode_cell(code, cells + size_t(i) * bytes, y.as<T>() + i * kWireCell);
  });
}

// x += y of a cell.
template <class T>
HWY_INLINE void add_cell(T* x, const float* y) {
  const FloatTag d;
  for_lanes(d, kWireCell, [&](int64_t k, auto lanes) HWY_ATTR {
    store(d, hn::Add(load(d, x + k, lanes), load(d, y + k, lanes)), x + k, lanes);
  });
}

// A binary counter: two partial sums of equal size become one, the earlier on the left; what is left at the
// end is added from the latest on. That is the tree that splits at powers of two.
HWY_INLINE const float* sum_of_cells(const WireSum& op, const std::byte* cell, size_t slice,
                                     float (*partial)[kWireCell]) {
  int level = 0;
  for (int s = 0; s < op.slices; ++s) {
    decode_cell(op.code, cell + size_t(s) * slice, partial[level]);
    for (int left = s + 1; left % 2 == 0; left /= 2, --level) add_cell(partial[level - 1], partial[level]);
    ++level;
  }
  for (; level > 1; --level) add_cell(partial[level - 2], partial[level - 1]);
  return partial[0];
}

void sum_cells(const WireSum& op, int64_t begin, int64_t end) {
  const FloatTag d;
  const size_t bytes = wire_cell_bytes(op.code), slice = wire_bytes(op.code, op.y.count());
  dispatch_float(op.y.dtype, [&]<class T>() HWY_ATTR {
    HWY_ALIGN float partial[kWireLevels][kWireCell];
    for (int64_t i = begin; i < end; ++i) {
      const float* const sum = sum_of_cells(op, op.cells + size_t(i) * bytes, slice, partial);
      T* const y = op.y.as<T>() + i * kWireCell;
      for_lanes(d, kWireCell, [&](int64_t k, auto lanes) HWY_ATTR {
        auto total = load(d, sum + k, lanes);
        if (op.accumulate) total = hn::Add(load(d, y + k, lanes), total);
        store(d, total, y + k, lanes);
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
HWY_EXPORT(sum_cells);

constexpr int64_t kGrain = 512;  // cells per task

}  // namespace

void check_wire_cells(std::string_view kernel, const std::byte* cells, const Tensor& values) {
  ensure(values.count() % kWireCell == 0 && values.contiguous(),
         "[{}] got {} x {} with stride {}, expected whole cells", kernel, values.rows, values.cols,
         values.stride);
  ensure(reinterpret_cast<uintptr_t>(cells) % sizeof(float) == 0, "[{}] got unaligned cells", kernel);
}

void check_wire_sum(const WireSum& op) {
  check_wire_cells("wire_sum", op.cells, op.y);
  ensure(op.slices >= 1 && op.slices <= kMostWireSlices, "[wire_sum] got {} slices, expected 1 to {}",
         op.slices, kMostWireSlices);
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

void wire_sum(StreamRef stream, const WireSum& op) {
  check_wire_sum(op);
  stream.launch([op](Workers& workers) {
    workers.for_ranges(op.y.count() / kWireCell, kGrain, [&](int64_t begin, int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(sum_cells)(op, begin, end);
    });
  });
}

}  // namespace cpu
}  // namespace zeno
#endif  // HWY_ONCE
