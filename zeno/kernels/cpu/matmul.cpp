#include "zeno/kernels/matmul.h"

#include <algorithm>

#include "zeno/base/math.h"
#include "zeno/kernels/cpu/gemm_fetcher.h"
#include "zeno/kernels/cpu/gemm_grid.h"
#include "zeno/kernels/cpu/kernel_scratch.h"
#include "zeno/kernels/cpu/matmul_few_rows.h"
#include "zeno/kernels/shape_checks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeno/kernels/cpu/matmul.cpp"
#include <hwy/foreach_target.h>

#include "zeno/kernels/cpu/gemm_rows.h"
#include "zeno/kernels/cpu/gemm_tile.h"

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {

struct GemmBlock {
  int64_t row, rows, col, cols;  // of C
};

// An operand seen as [w][k]: w runs along M for A, along N for B.
struct Operand {
  const Tensor& t;
  bool k_is_row;  // stored [K, W], else [W, K]

  // Panels of `Width` over [w, w + width), from k0 on, kc deep.
  template <int Width>
  void pack(int64_t w, int64_t width, int64_t k0, int64_t kc, float* dst) const {
    const int64_t panels = div_ceil<int64_t>(width, Width);
    if (kc == 0) return;
    dispatch_float(t.dtype, [&]<class T>() {
      if (k_is_row) return pack_along<Width>(t.row<T>(k0) + w, t.stride, kc, t.cols - w, dst, panels);
      for (int64_t p = 0; p < panels; ++p, w += Width, dst += kc * Width) {
        pack_across<Width>(t.row<T>(w) + k0, t.stride, kc, t.rows - w, dst);
      }
    });
  }

  // The memory of w in [w, w + width), k in [k0, k0 + kc), cut off at the end of the operand.
  Region region(int64_t w, int64_t width, int64_t k0, int64_t kc) const {
    const int64_t row = k_is_row ? k0 : w, col = k_is_row ? w : k0;
    const int64_t rows = std::min(k_is_row ? kc : width, t.rows - row);
    const int64_t cols = std::min(k_is_row ? width : kc, t.cols - col);
    if (rows <= 0 || cols <= 0) return {};
    const int64_t size = int64_t(size_of(t.dtype));
    return {t.data + (row * t.stride + col) * size, rows, cols * size, t.stride * size};
  }
};

// One block of C. While it multiplies, it fetches what it will pack next: packing waits for memory otherwise.
class BlockProduct {
 public:
  BlockProduct(const Matmul& op, int64_t depth, const GemmBlock& block, float* scratch)
      : op_(op),
        a_{op.a, op.transpose_a},
        b_{op.b, !op.transpose_b},
        depth_(depth),
        block_(block),
        direct_(all_fp32(op)),
        ld_(round_up<int64_t>(block.cols, kNR)),
        b_panels_(scratch),
        a_panels_(b_panels_ + kBlockK * kBlockN + kPanelSlack),
        sums_(a_panels_ + kPanelsA * kMR * kBlockK + kPanelSlack) {}

  void run() {
    const int64_t steps = std::max<int64_t>(1, div_ceil(depth_, kBlockK));
    for (int64_t step = 0; step < steps; ++step) {
      k0_ = step * kBlockK;
      kc_ = std::min(kBlockK, depth_ - k0_);
      first_ = step == 0;
      last_ = step + 1 == steps;
      for (int64_t i = 0; i < block_.rows; i += kPanelsA * kMR) multiply_rows_from(i);
    }
  }

 private:
  // The first rows pack B on their way, panel by panel; then B lies in the L2 cache and each panel of A, in
  // L1, meets all of it.
  void multiply_rows_from(int64_t i) {
    const int64_t rows = std::min(block_.rows - i, kPanelsA * kMR);
    a_.pack<kMR>(block_.row + i, rows, k0_, kc_, a_panels_);
    const int64_t height = div_ceil<int64_t>(rows, kMR), width = div_ceil<int64_t>(block_.cols, kNR);
    Fetcher next_a = fetch_next_a(i + rows);
    const int64_t share = div_ceil(next_a.lines(), height * width);
    if (i == 0) {
      for (int64_t j = 0; j < width; ++j) {
        b_.pack<kNR>(block_.col + j * kNR, kNR, k0_, kc_, b_panels_ + j * kNR * kc_);
        Fetcher next_b = fetch_next_b((j + 1) * kNR);
        const int64_t b_share = div_ceil(next_b.lines(), height);
        for (int64_t r = 0; r < height; ++r) {
          next_a.fetch(share);
          next_b.fetch(b_share);
          multiply_tile_at(i, r, j);
        }
      }
    } else {
      for (int64_t r = 0; r < height; ++r) {
        for (int64_t j = 0; j < width; ++j) {
          next_a.fetch(share);
          multiply_tile_at(i, r, j);
        }
      }
    }
    if (last_ && !direct_) finish(i, rows, 0, block_.cols);
  }

  // Panel r of the rows from i on times panel j of B.
  void multiply_tile_at(int64_t block_row, int64_t r, int64_t panel) {
    const int64_t i = block_row + r * kMR, j = panel * kNR;
    const int rows = int(std::min<int64_t>(kMR, block_.rows - i));
    const int cols = int(std::min<int64_t>(kNR, block_.cols - j));
    float* const sums = sums_ + i * ld_ + j;
    TileOutput to{.out = sums, .ld = ld_, .ld_sums = ld_};
    if (!first_) to.sums = sums;
    const bool whole = rows == kMR && cols == kNR;
    if (last_ && direct_ && whole) {
      const int64_t row = block_.row + i, col = block_.col + j;
      const Tensor& extra = op_.accumulate ? op_.c : op_.residual;
      to.out = op_.c.row<float>(row) + col;
      to.ld = op_.c.stride;
      if (op_.bias) to.bias = op_.bias.as<float>() + col;
      if (extra) to.extra = extra.row<float>(row) + col;
      to.ld_extra = extra.stride;
      prefetch_tile(extra ? to.extra : to.out, extra ? to.ld_extra : to.ld);
    }
    multiply_panels(rows, cols, kc_, a_panels_ + r * kMR * kc_, b_panels_ + j * kc_, to);
    if (last_ && direct_ && !whole) finish(i, rows, j, cols);
  }

  // Rows of C are far apart: no hardware prefetcher sees them coming.
  static void prefetch_tile(const float* tile, int64_t ld) {
    for (int r = 0; r < kMR; ++r) {
      for (int c = 0; c < kNR; c += 16) __builtin_prefetch(tile + r * ld + c, 1, 2);
    }
  }

  void finish(int64_t i, int64_t rows, int64_t j, int64_t cols) {
    finish_rows(op_, block_.row + i, rows, block_.col + j, cols, sums_ + i * ld_ + j, ld_);
  }

  // Everything in fp32: whole tiles go from registers to C.
  static bool all_fp32(const Matmul& op) {
    const auto plain = [](const Tensor& t) { return !t || t.dtype == DType::f32; };
    return plain(op.c) && plain(op.bias) && plain(op.residual) && !(op.accumulate && op.residual);
  }

  Fetcher fetch_next_a(int64_t i) const {
    if (i < block_.rows) return Fetcher(a_.region(block_.row + i, kPanelsA * kMR, k0_, kc_));
    if (!last_) return Fetcher(a_.region(block_.row, kPanelsA * kMR, k0_ + kc_, kBlockK));
    return {};
  }
  Fetcher fetch_next_b(int64_t j) const {
    return j < block_.cols ? Fetcher(b_.region(block_.col + j, kNR, k0_, kc_)) : Fetcher();
  }

  const Matmul& op_;
  const Operand a_, b_;
  const int64_t depth_;
  const GemmBlock block_;
  const bool direct_;
  const int64_t ld_;         // row stride of sums_
  float* const b_panels_;    // [panel][kc][kNR]
  float* const a_panels_;    // [panel][kc][kMR]
  float* const sums_;        // fp32 sums of the block over the k done so far
  int64_t k0_ = 0, kc_ = 0;  // the piece of K at hand
  bool first_ = false, last_ = false;
};

static_assert((kBlockK * kBlockN + kPanelsA * kMR * kBlockK + kBlockM * kBlockN + 2 * kPanelSlack) * 4 <=
              kScratchBytes);

void run_matmul(Workers& workers, const Matmul& op) {
  const int64_t depth = op.transpose_a ? op.a.rows : op.a.cols;
  const GemmGrid grid = choose_gemm_grid(op.c.rows, op.c.cols, kMR, kNR, workers.threads());
  workers.for_each(grid.count(), [&](int64_t index, int thread) {
    GemmBlock block{.row = index % grid.count_m * grid.block_m,
                    .rows = 0,
                    .col = index / grid.count_m * grid.block_n,
                    .cols = 0};
    block.rows = std::min(grid.block_m, op.c.rows - block.row);
    block.cols = std::min(grid.block_n, op.c.cols - block.col);
    BlockProduct(op, depth, block, reinterpret_cast<float*>(workers.scratch(thread))).run();
  });
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeno::cpu {
HWY_EXPORT(run_matmul);

void matmul(StreamRef stream, const Matmul& op) {
  check_shapes(op);
  if (op.c.count() == 0) return;
  stream.launch([op](Workers& workers) {
    check_scratch(workers, "matmul");
    if (is_few_rows(op)) return run_few_rows(workers, op);
    HWY_DYNAMIC_DISPATCH(run_matmul)(workers, op);
  });
}

}  // namespace zeno::cpu
#endif
