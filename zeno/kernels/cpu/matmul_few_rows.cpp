#include "zeno/kernels/cpu/matmul_few_rows.h"

#include <algorithm>

#include "zeno/base/math.h"
#include "zeno/kernels/cpu/gemm_grid.h"
#include "zeno/kernels/cpu/kernel_scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeno/kernels/cpu/matmul_few_rows.cpp"
#include <hwy/foreach_target.h>

#include "zeno/kernels/cpu/gemm_rows.h"

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {

using FloatVec = hn::Vec<FloatTag>;
using WordTag = hn::RebindToUnsigned<FloatTag>;
using WordVec = hn::Vec<WordTag>;
inline constexpr int kLanes = int(hn::MaxLanes(FloatTag()));  // columns of C at once, one to a lane
inline constexpr int kMaxRows = 8;

// B is read in words of 32 bits: one fp32 value, or two neighbours of 16 bits.
template <class T>
inline constexpr int kPerWord = 4 / int(sizeof(T));

// Four words at byte `at` of each of kLanes rows, transposed: column[i] has word i of every row.
HWY_INLINE void load_columns(const std::byte* const (&row)[kLanes], int64_t at, WordVec (&column)[4]) {
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 4; ++i) {
    uint32_t word;
    std::memcpy(&word, row[0] + at + 4 * i, 4);
    column[i] = hn::Set(WordTag(), word);
  }
#else
  // 128-bit block g of part[i] is row 4g + i, so that interleaving within blocks transposes 4 × 4 each.
  const hn::CappedTag<uint32_t, 4> quad;
  const WordTag d;
  const hn::RepartitionToWide<WordTag> w;
  const auto words = [&](int r)
                         HWY_ATTR { return hn::LoadU(quad, reinterpret_cast<const uint32_t*>(row[r] + at)); };
  WordVec part[4];
  for (int i = 0; i < 4; ++i) {
#if HWY_MAX_BYTES >= 64
    const hn::CappedTag<uint32_t, 8> oct;
    const auto low = hn::Combine(oct, words(4 + i), words(i));
    part[i] = hn::Combine(d, hn::Combine(oct, words(12 + i), words(8 + i)), low);
#elif HWY_MAX_BYTES >= 32
    part[i] = hn::Combine(d, words(4 + i), words(i));
#else
    part[i] = words(i);
#endif
  }
  const auto lo01 = hn::BitCast(w, hn::InterleaveLower(d, part[0], part[1]));
  const auto hi01 = hn::BitCast(w, hn::InterleaveUpper(d, part[0], part[1]));
  const auto lo23 = hn::BitCast(w, hn::InterleaveLower(d, part[2], part[3]));
  const auto hi23 = hn::BitCast(w, hn::InterleaveUpper(d, part[2], part[3]));
  column[0] = hn::BitCast(d, hn::InterleaveLower(w, lo01, lo23));
  column[1] = hn::BitCast(d, hn::InterleaveUpper(w, lo01, lo23));
  column[2] = hn::BitCast(d, hn::InterleaveLower(w, hi01, hi23));
  column[3] = hn::BitCast(d, hn::InterleaveUpper(w, hi01, hi23));
#endif
}

HWY_INLINE FloatVec value_of(WordVec word, int, float) { return hn::BitCast(FloatTag(), word); }
// The lower address is the lower half.
template <class Half>
HWY_INLINE FloatVec value_of(WordVec word, int which, Half half) {
  const WordTag d;
  const auto bits = which == 0 ? hn::And(word, hn::Set(d, 0xffffu)) : hn::ShiftRight<16>(word);
  return widen(FloatTag(), bits, half);
}

// sums[r] = Σ over k in [0, count) of x[r][k] · b[lane][k]: one chain of multiply-adds in ascending k each.
// `ahead` bytes further on lie the rows after these: they come to L2 on the way, the rest of these to L1.
template <int R, class T>
HWY_INLINE void multiply_piece(const std::byte* const (&row)[kLanes], int64_t count, const float* x,
                               int64_t ld, int64_t ahead, FloatVec (&sums)[R]) {
  constexpr int kPer = kPerWord<T>, kStep = 4 * kPer;
  const FloatTag d;
  for (int r = 0; r < R; ++r) sums[r] = hn::Zero(d);
  int64_t k = 0;
  for (; k + kStep <= count; k += kStep) {
    if (k % (4 * kStep) == 0) {
      for (int lane = 0; lane < kLanes; ++lane) {
        const std::byte* at = row[lane] + k * int64_t(sizeof(T));
        __builtin_prefetch(at + 256, 0, 3);
        __builtin_prefetch(at + ahead, 0, 2);
      }
    }
    WordVec column[4];
    load_columns(row, k * int64_t(sizeof(T)), column);
    HWY_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      HWY_UNROLL(2)
      for (int j = 0; j < kPer; ++j) {
        const FloatVec b = value_of(column[i], j, T());
        HWY_UNROLL(8)
        for (int r = 0; r < R; ++r)
          sums[r] = hn::MulAdd(hn::Set(d, x[r * ld + k + i * kPer + j]), b, sums[r]);
      }
    }
  }
  for (; k < count; ++k) {
    HWY_ALIGN float column[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) column[lane] = float(reinterpret_cast<const T*>(row[lane])[k]);
    for (int r = 0; r < R; ++r) sums[r] = hn::MulAdd(hn::Set(d, x[r * ld + k]), hn::Load(d, column), sums[r]);
  }
}

// Columns [col, col + cols) of C, cols <= kLanes. x: the rows of A in fp32, R of them, [R][ld].
template <int R, class T>
void multiply_columns(const Matmul& op, const float* x, int64_t ld, int64_t col, int64_t cols) {
  const FloatTag d;
  const std::byte* row[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    const int64_t n = std::min<int64_t>(col + lane, op.b.rows - 1);  // what repeats is not written
    row[lane] = reinterpret_cast<const std::byte*>(op.b.row<T>(n));
  }
  const int64_t ahead = kLanes * op.b.stride * int64_t(sizeof(T));
  HWY_ALIGN float total[R * kLanes];
  for (int64_t k0 = 0; k0 < op.b.cols; k0 += kBlockK) {
    const int64_t count = std::min(kBlockK, op.b.cols - k0);
    FloatVec sums[R];
    multiply_piece<R, T>(row, count, x + k0, ld, ahead, sums);
    for (int r = 0; r < R; ++r) {
      if (k0 > 0) sums[r] = hn::Add(hn::Load(d, total + r * kLanes), sums[r]);
      hn::Store(sums[r], d, total + r * kLanes);
    }
    for (const std::byte*& at : row) at += count * int64_t(sizeof(T));
  }
  finish_rows(op, 0, op.c.rows, col, cols, total, kLanes);
}

template <int R>
void multiply_range(const Matmul& op, int64_t begin, int64_t end, float* x) {
  const int64_t ld = op.a.cols;
  std::fill_n(x, R * ld, 0.0f);  // rows that pad A up to R
  for (int64_t r = 0; r < op.a.rows; ++r) {
    dispatch_float(op.a.dtype, [&]<class T>() { add_row(op.a.row<T>(r), ld, x + r * ld); });
  }
  dispatch_float(op.b.dtype, [&]<class T>() {
    for (int64_t col = begin; col < end; col += kLanes)
      multiply_columns<R, T>(op, x, ld, col, std::min<int64_t>(kLanes, end - col));
  });
}

void multiply_few_rows(Workers& workers, const Matmul& op) {
  // Enough tasks to balance threads, each long enough to be worth starting.
  const int64_t least = std::max<int64_t>(kLanes, (int64_t(1) << 15) / std::max<int64_t>(1, op.b.cols));
  const int64_t even = div_ceil<int64_t>(op.c.cols, 4 * workers.threads());
  workers.for_ranges(op.c.cols, round_up<int64_t>(std::max(least, even), kLanes),
                     [&](int64_t begin, int64_t end, int thread) {
                       float* x = reinterpret_cast<float*>(workers.scratch(thread));
                       if (op.a.rows == 1) return multiply_range<1>(op, begin, end, x);
                       if (op.a.rows == 2) return multiply_range<2>(op, begin, end, x);
                       if (op.a.rows <= 4) return multiply_range<4>(op, begin, end, x);
                       multiply_range<kMaxRows>(op, begin, end, x);
                     });
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeno::cpu {
HWY_EXPORT(multiply_few_rows);

bool is_few_rows(const Matmul& op) {
  constexpr int64_t kRows = 8;
  return op.transpose_b && !op.transpose_a && op.a.rows <= kRows && op.a.cols > 0 &&
         op.a.cols * kRows * int64_t(sizeof(float)) <= kScratchBytes;
}

void run_few_rows(Workers& workers, const Matmul& op) {
  HWY_DYNAMIC_DISPATCH(multiply_few_rows)(workers, op);
}

}  // namespace zeno::cpu
#endif
