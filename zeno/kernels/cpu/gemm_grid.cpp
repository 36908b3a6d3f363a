#include "zeno/kernels/cpu/gemm_grid.h"

#include <limits>

#include "zeno/base/math.h"

namespace zeno {
namespace {

// Packing one value costs about as much as this many multiply-adds.
constexpr double kPackCost = 10;

GemmGrid cut(int64_t m, int64_t n, int tile_m, int tile_n, int64_t count_m, int64_t count_n) {
  GemmGrid grid;
  grid.block_m = round_up<int64_t>(div_ceil(m, count_m), tile_m);
  grid.block_n = round_up<int64_t>(div_ceil(n, count_n), tile_n);
  grid.count_m = div_ceil(m, grid.block_m);
  grid.count_n = div_ceil(n, grid.block_n);
  return grid;
}

double time_of(const GemmGrid& grid, int threads) {
  const double bm = double(grid.block_m), bn = double(grid.block_n);
  const double rounds = double(div_ceil<int64_t>(grid.count(), threads));
  return rounds * bm * bn * (1 + kPackCost / bm + kPackCost / bn);
}

}  // namespace

GemmGrid choose_gemm_grid(int64_t m, int64_t n, int tile_m, int tile_n, int threads) {
  const int64_t least_m = div_ceil(m, kBlockM / tile_m * tile_m);
  const int64_t least_n = div_ceil(n, kBlockN / tile_n * tile_n);
  const int64_t tries = threads == 1 ? 1 : 2 * threads;
  GemmGrid best;
  double best_time = std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < tries && least_m + i <= div_ceil<int64_t>(m, tile_m); ++i) {
    for (int64_t j = 0; j < tries && least_n + j <= div_ceil<int64_t>(n, tile_n); ++j) {
      const GemmGrid grid = cut(m, n, tile_m, tile_n, least_m + i, least_n + j);
      const double time = time_of(grid, threads);
      if (time < best_time) {
        best = grid;
        best_time = time;
      }
    }
  }
  return best;
}

}  // namespace zeno
