#include "zeno/kernels/nf4.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeno/kernels/cpu/nf4.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "zeno/kernels/cpu/simd_lanes.h"

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {

using CodeTag = hn::RebindToSigned<FloatTag>;

// The code of a value in [-1, 1] is how many borders between levels lie below it.
HWY_INLINE hn::Vec<CodeTag> code_of(FloatTag d, hn::Vec<FloatTag> x) {
  const CodeTag di;
  auto code = hn::Zero(di);
  for (size_t level = 1; level < kNf4Levels.size(); ++level) {
    const float border = float((double(kNf4Levels[level - 1]) + double(kNf4Levels[level])) / 2);
    const auto below = hn::Gt(x, hn::Set(d, border));
    code = hn::Sub(code, hn::VecFromMask(di, hn::RebindMask(di, below)));
  }
  return code;
}

// Codes of one block, and the largest magnitude in it.
float quantise_block(const float* x, uint8_t* codes) {
  const FloatTag d;
  auto most = hn::Zero(d);
  for_lanes(d, kNf4Block,
            [&](int64_t i, auto lanes) HWY_ATTR { most = hn::Max(most, hn::Abs(load(d, x + i, lanes))); });
  const float largest = hn::GetLane(hn::MaxOfLanes(d, most));
  const auto divisor = hn::Set(d, largest > 0 ? largest : 1.0f);
  HWY_ALIGN uint8_t each[kNf4Block];
  for_lanes(d, kNf4Block, [&](int64_t i, auto lanes) HWY_ATTR {
    const auto code = code_of(d, hn::Div(load(d, x + i, lanes), divisor));
    store_raw(d, hn::DemoteTo(hn::Rebind<uint8_t, FloatTag>(), code), each + i, lanes);
  });
  for (int64_t i = 0; i < kNf4Block / 2; ++i) codes[i] = uint8_t(each[2 * i] << 4 | each[2 * i + 1]);
  return largest;
}

// Elements of a block by their codes: table[upper half], table[lower half] of every byte.
#if HWY_TARGET == HWY_SCALAR
template <class T>
HWY_INLINE void look_up(const T* table, const uint8_t* codes, T* y) {
  for (int64_t i = 0; i < kNf4Block / 2; ++i) {
    y[2 * i] = table[codes[i] >> 4];
    y[2 * i + 1] = table[codes[i] & 15];
  }
}
#else
using Bytes16 = hn::FixedTag<uint8_t, 16>;

// The table and the result are taken apart into their first bytes, their second bytes, and so on.
template <class T>
HWY_INLINE void look_up_vector(const T* table, hn::Vec<Bytes16> codes, T* y) {
  const Bytes16 d;
  const auto* from = reinterpret_cast<const uint8_t*>(table);
  auto* to = reinterpret_cast<uint8_t*>(y);
  hn::Vec<Bytes16> b0, b1, b2, b3;
  if constexpr (sizeof(T) == 2) {
    hn::LoadInterleaved2(d, from, b0, b1);
    hn::StoreInterleaved2(hn::TableLookupBytes(b0, codes), hn::TableLookupBytes(b1, codes), d, to);
  } else {
    hn::LoadInterleaved4(d, from, b0, b1, b2, b3);
    hn::StoreInterleaved4(hn::TableLookupBytes(b0, codes), hn::TableLookupBytes(b1, codes),
                          hn::TableLookupBytes(b2, codes), hn::TableLookupBytes(b3, codes), d, to);
  }
}

template <class T>
HWY_INLINE void look_up(const T* table, const uint8_t* codes, T* y) {
  const Bytes16 d;
  const hn::Repartition<uint16_t, Bytes16> d16;
  const auto half = hn::Set(d, uint8_t(15));
  for (int64_t i = 0; i < kNf4Block / 2; i += 16) {
    const auto pairs = hn::LoadU(d, codes + i);
    const auto upper = hn::And(hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(d16, pairs))), half);
    const auto lower = hn::And(pairs, half);
    look_up_vector(table, hn::InterleaveLower(d, upper, lower), y + 2 * i);
    look_up_vector(table, hn::InterleaveUpper(d, upper, lower), y + 2 * i + 16);
  }
}
#endif

// A block knows only 16 values: they are rounded once.
template <class T>
HWY_INLINE void decode_block(const uint8_t* codes, float scale, T* y) {
  const FloatTag d;
  HWY_ALIGN T table[16];
  for_lanes(d, 16, [&](int64_t i, auto lanes) HWY_ATTR {
    store(d, hn::Mul(load(d, kNf4Levels.data() + i, lanes), hn::Set(d, scale)), table + i, lanes);
  });
  look_up(table, codes, y);
}

void decode_blocks(const Nf4Cell* cells, const Tensor& y, int64_t begin, int64_t end) {
  dispatch_float(y.dtype, [&]<class T>() HWY_ATTR {
    T* to = y.as<T>();
    for (int64_t block = begin; block < end; ++block) {
      const Nf4Cell& cell = cells[block / kNf4CellBlocks];
      const size_t i = size_t(block % kNf4CellBlocks);
      decode_block(cell.codes.data() + i * (kNf4Block / 2), nf4_scale(cell.base, cell.step, cell.scales[i]),
                   to + block * kNf4Block);
    }
  });
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeno {
namespace {

HWY_EXPORT(quantise_block);
HWY_EXPORT(decode_blocks);

constexpr uint8_t kZeros = kNf4Zero << 4 | kNf4Zero;

// `blocks` of them hold something.
void quantise_scales(const float* largest, int64_t blocks, Nf4Cell& cell) {
  const auto [low, high] = std::minmax_element(largest, largest + blocks);
  cell.base = *low;
  cell.step = (*high - *low) / (255.0f * 255.0f);
  for (int64_t i = 0; i < blocks && cell.step > 0; ++i) {
    const float q = std::round(std::sqrt((largest[i] - cell.base) / cell.step));
    cell.scales[size_t(i)] = uint8_t(std::min(q, 255.0f));
  }
}

}  // namespace

void nf4_quantise(std::span<const float> values, Nf4Cell* cells) {
  const int64_t count = int64_t(values.size());
  for (int64_t begin = 0; begin < count; begin += kNf4Cell, ++cells) {
    *cells = {};
    cells->codes.fill(kZeros);
    float largest[kNf4CellBlocks];
    const int64_t blocks = div_ceil(std::min(kNf4Cell, count - begin), kNf4Block);
    for (int64_t i = 0; i < blocks; ++i) {
      float part[kNf4Block] = {};
      const float* from = values.data() + begin + i * kNf4Block;
      const int64_t rest = count - begin - i * kNf4Block;
      if (rest < kNf4Block) from = std::copy_n(from, rest, part) - rest;
      largest[i] = HWY_DYNAMIC_DISPATCH(quantise_block)(from, cells->codes.data() + i * (kNf4Block / 2));
    }
    quantise_scales(largest, blocks, *cells);
  }
}

void nf4_decode_on_host(const Nf4Cell* cells, std::span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const Nf4Cell& cell = cells[i / kNf4Cell];
    const size_t at = i % kNf4Cell;
    const int pair = cell.codes[at / 2];
    const float level = kNf4Levels[size_t(at % 2 == 0 ? pair >> 4 : pair & 15)];
    values[i] = level * nf4_scale(cell.base, cell.step, cell.scales[at / kNf4Block]);
  }
}

namespace cpu {

void nf4_decode(StreamRef stream, const Nf4Cell* cells, Tensor y) {
  ensure(y.count() % kNf4Cell == 0 && y.contiguous(),
         "[nf4_decode] got {} x {} with stride {}, expected whole cells", y.rows, y.cols, y.stride);
  constexpr int64_t kGrain = 512;  // blocks per task
  stream.launch([=](Workers& workers) {
    workers.for_ranges(y.count() / kNf4Block, kGrain, [&](int64_t begin, int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(decode_blocks)(cells, y, begin, end);
    });
  });
}

}  // namespace cpu
}  // namespace zeno
#endif  // HWY_ONCE
