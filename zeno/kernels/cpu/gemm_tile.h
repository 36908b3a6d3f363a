// The parts of a packed matmul, compiled once per SIMD target: panels of A ([k][kMR]) and of B ([k][kNR]) in
// fp32 whatever the storage type, and the register tile that multiplies one panel by the other. Each element
// is one chain of multiply-adds in ascending k, in full tiles and in edge tiles alike. Included once per SIMD
// target like simd_lanes.h. Everything works on the calling thread.
#if defined(ZENO_KERNELS_CPU_GEMM_TILE_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZENO_KERNELS_CPU_GEMM_TILE_H_
#undef ZENO_KERNELS_CPU_GEMM_TILE_H_
#else
#define ZENO_KERNELS_CPU_GEMM_TILE_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "zeno/kernels/cpu/simd_lanes.h"

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {

using FloatVec = hn::Vec<FloatTag>;
inline constexpr int64_t kLanes = hn::MaxLanes(FloatTag());

// Register tile: as many accumulators as the register file holds beside one row of B and one value of A.
// Heads are multiples of 8 wide and tile without rest.
inline constexpr int kNV = kLanes == 1 ? 4 : 3;
inline constexpr int kMR = HWY_MAX_BYTES >= 64 ? 8 : 4;
inline constexpr int kNR = kNV * int(kLanes);
static_assert(kNR % kMR == 0);  // tiles of tokens are whole panels on both sides
// Packing may write this many floats past the end of a panel.
inline constexpr int64_t kPanelSlack = 64;

// Where the sums of a tile go. out = ((sums + product) + bias) + extra; null operands are skipped.
struct TileOutput {
  float* out = nullptr;
  int64_t ld = 0;                // row stride of out
  const float* sums = nullptr;   // over the k before; may be out
  const float* bias = nullptr;   // one row
  const float* extra = nullptr;  // may be out
  int64_t ld_sums = 0, ld_extra = 0;
};

// to.out[r][j] = sum over k of a[k][r] * b[k][j], for R <= kMR rows and V <= kNV vectors of columns.
template <int R, int V>
HWY_NOINLINE void multiply_tile(int64_t k, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                                const TileOutput& to) {
  constexpr int64_t kN = kLanes;
  const FloatTag d;
  FloatVec acc[R][V];
  HWY_UNROLL(16)
  for (int r = 0; r < R; ++r) {
    HWY_UNROLL(4)
    for (int v = 0; v < V; ++v) acc[r][v] = hn::Zero(d);
  }
  HWY_UNROLL(4)
  for (; k > 0; --k) {
    FloatVec bv[V];
    HWY_UNROLL(4)
    for (int v = 0; v < V; ++v) bv[v] = hn::Load(d, b + v * kN);
    HWY_UNROLL(16)
    for (int r = 0; r < R; ++r) {
      const FloatVec av = hn::Set(d, a[r]);
      HWY_UNROLL(4)
      for (int v = 0; v < V; ++v) acc[r][v] = hn::MulAdd(av, bv[v], acc[r][v]);
    }
    a += kMR;
    b += kNR;
  }
  HWY_UNROLL(16)
  for (int r = 0; r < R; ++r) {
    HWY_UNROLL(4)
    for (int v = 0; v < V; ++v) {
      FloatVec sum = acc[r][v];
      if (to.sums) sum = hn::Add(hn::LoadU(d, to.sums + r * to.ld_sums + v * kN), sum);
      if (to.bias) sum = hn::Add(sum, hn::LoadU(d, to.bias + v * kN));
      if (to.extra) sum = hn::Add(sum, hn::LoadU(d, to.extra + r * to.ld_extra + v * kN));
      hn::StoreU(sum, d, to.out + r * to.ld + v * kN);
    }
  }
}

template <int V>
HWY_INLINE void multiply_rows(int rows, int64_t k, const float* a, const float* b, const TileOutput& to) {
  constexpr int kHalf = (kMR + 1) / 2, kQuarter = (kMR + 3) / 4;
  if (rows > kHalf) return multiply_tile<kMR, V>(k, a, b, to);
  if (rows > kQuarter) return multiply_tile<kHalf, V>(k, a, b, to);
  if (rows > 1) return multiply_tile<kQuarter, V>(k, a, b, to);
  multiply_tile<1, V>(k, a, b, to);
}

// One tile of at most kMR × kNR; writes whole vectors and may write rows past `rows`, up to kMR.
HWY_INLINE void multiply_panels(int rows, int cols, int64_t k, const float* a, const float* b,
                                const TileOutput& to) {
  if (cols > int(kLanes)) {
    multiply_rows<kNV>(rows, k, a, b, to);
  } else {
    multiply_rows<1>(rows, k, a, b, to);
  }
}

// `panels` panels of width W, one after the other, from a source whose rows are k: src[k * ld + w].
// `readable` elements exist in each row from src on; those past the end become zero.
template <int W, class T>
HWY_NOINLINE void pack_along(const T* src, int64_t ld, int64_t k, int64_t readable, float* HWY_RESTRICT dst,
                             int64_t panels = 1) {
  using D = hn::CappedTag<float, size_t(W >= kLanes ? kLanes : W)>;
  const D d;
  constexpr int kStep = int(hn::MaxLanes(D()));
  static_assert(W % kStep == 0);
  const int64_t whole = readable < panels * W ? readable / W : panels;
  for (int64_t i = 0; i < k; ++i, src += ld, dst += W) {
    // Along the row, so that each cache line is read once.
    for (int64_t p = 0; p < whole; ++p) {
      HWY_UNROLL(8)
      for (int w = 0; w < W; w += kStep)
        hn::StoreU(load(d, src + p * W + w, AllLanes()), d, dst + p * k * W + w);
    }
    for (int64_t w = whole * W; w < panels * W; ++w) {
      dst[w / W * k * W + w % W] = w < readable ? float(src[w]) : 0;
    }
  }
}

#if HWY_TARGET == HWY_SCALAR
inline constexpr int kGroup = 1;
#else
inline constexpr int kGroup = kLanes >= 8 ? 8 : 4;
#endif

// kGroup rows of four values each from column k on, transposed and written with row stride ld.
template <class T>
HWY_INLINE void transpose_group(const T* const (&row)[kGroup], int64_t k, float* dst, int64_t ld) {
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 4; ++i) dst[i * ld] = float(row[0][k + i]);
#else
  const hn::CappedTag<float, 4> quad;
  const hn::CappedTag<float, kGroup> d;
  const hn::RepartitionToWide<decltype(d)> w;
  // 128-bit block g of r[i] is row 4g + i, so that interleaving within blocks transposes 4 × 4 each.
  hn::Vec<decltype(d)> r[4];
  for (int i = 0; i < 4; ++i) {
#if HWY_MAX_BYTES >= 32
    r[i] = hn::Combine(d, load(quad, row[4 + i] + k, AllLanes()), load(quad, row[i] + k, AllLanes()));
#else
    r[i] = load(quad, row[i] + k, AllLanes());
#endif
  }
  const auto lo01 = hn::BitCast(w, hn::InterleaveLower(d, r[0], r[1]));
  const auto hi01 = hn::BitCast(w, hn::InterleaveUpper(d, r[0], r[1]));
  const auto lo23 = hn::BitCast(w, hn::InterleaveLower(d, r[2], r[3]));
  const auto hi23 = hn::BitCast(w, hn::InterleaveUpper(d, r[2], r[3]));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(w, lo01, lo23)), d, dst);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(w, lo01, lo23)), d, dst + ld);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(w, hi01, hi23)), d, dst + 2 * ld);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(w, hi01, hi23)), d, dst + 3 * ld);
#endif
}

// Panel of width W from a source whose columns are k: src[w * ld + k], `valid` rows of it (>= 1); rows past
// the end repeat the last one. `ld_dst` is W for a panel, more when the result is a strip of a wider matrix
// (then W is a multiple of 8). Groups of rows go from the last to the first: the last may spill into the next
// k, and what it spilt is overwritten.
template <int W, class T>
HWY_NOINLINE void pack_across(const T* src, int64_t ld, int64_t k, int64_t valid, float* HWY_RESTRICT dst,
                              int64_t ld_dst = W) {
  constexpr int64_t kChunk = 64;
  for (int64_t k0 = 0; k0 < k; k0 += kChunk) {
    const int64_t k1 = k0 + kChunk < k ? k0 + kChunk : k;
    for (int g = (W - 1) / kGroup * kGroup; g >= 0; g -= kGroup) {
      const T* row[kGroup];
      for (int r = 0; r < kGroup; ++r) row[r] = src + (g + r < valid ? g + r : valid - 1) * ld;
      int64_t i = k0;
      for (; i + 4 <= k1; i += 4) transpose_group(row, i, dst + i * ld_dst + g, ld_dst);
      for (; i < k1; ++i) {
        for (int r = 0; r < kGroup; ++r) dst[i * ld_dst + g + r] = float(row[r][i]);
      }
    }
  }
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per-target include guard
