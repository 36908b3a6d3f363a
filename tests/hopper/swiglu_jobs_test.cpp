// The kernels of products with SwiGLU in them, run on a simulated GPU: tiles, layouts and the protocol of
// barriers, on every machine that can compile CUDA. That a real GPU agrees is tested in tests/cuda.
#include "zeno/kernels/cuda/hopper/swiglu_jobs.h"

#include <gtest/gtest.h>

#include <cmath>

namespace zeno::cuda {
namespace {

using simulated::Gpu, simulated::TileMap;

constexpr float kUntouched = 776;  // exact in bf16

// A matrix with room at the end of each row, which nobody may touch.
struct Matrix {
  Matrix(int64_t height, int64_t width, double scale, uint32_t seed)
      : rows(height),
        cols(width),
        stride(width + 8),
        values(size_t(rows * stride), __nv_bfloat16(kUntouched)) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal(0, float(scale));
    for (int64_t r = 0; r < rows && scale > 0; ++r) {
      for (int64_t c = 0; c < cols; ++c) values[size_t(r * stride + c)] = __nv_bfloat16(normal(engine));
    }
  }
  double operator()(int64_t r, int64_t c) const { return float(values[size_t(r * stride + c)]); }
  CUtensorMap tiles(int64_t first, int64_t height, int box_rows) const {
    const auto* data = reinterpret_cast<const uint16_t*>(values.data()) + first * stride;
    return simulated::tile_map({data, height, cols, stride, box_rows});
  }
  bool kept_its_edges() const {
    bool kept = true;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = cols; c < stride; ++c) kept = kept && (*this)(r, c) == kUntouched;
    }
    return kept;
  }

  int64_t rows, cols, stride;
  std::vector<__nv_bfloat16> values;
};

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }
// Of 8 bits, once or a few times.
bool close(double got, double expected, double ulps) {
  return std::abs(got - expected) <= ulps / 256 * (1 + std::abs(expected));
}

struct Case {
  int64_t rows, depth, width;
  uint32_t clusters;
  int64_t cached;  // of the weight, in bytes
};

template <class Job>
TileOrder order_of(const Case& c) {
  const int64_t tile_columns = div_ceil<int64_t>(c.width, Job::kColumns);
  return {div_ceil<int64_t>(c.rows, kBlocks * kBlockRows), tile_columns, kTileColumns * c.depth * 2,
          c.cached};
}

template <class Job>
void run(const Case& c, uint32_t seed, const Job& job) {
  Gpu(c.clusters, kProductThreads, seed).run([&] { product_kernel<Job>(job); });
}

// One tile; edges in all directions and more tiles than clusters; two clusters, a ring that goes round.
constexpr Case kCases[] = {
    {256, 64, 256, 1, 1 << 20}, {300, 72, 264, 1, 1}, {513, 200, 392, 2, 210'000}, {40, 8, 8, 2, 1}};

class SwigluJobs : public ::testing::TestWithParam<uint32_t> {};

TEST_P(SwigluJobs, ForwardIsProductAndActivation) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.depth << " x " << c.width);
    const Matrix x(c.rows, c.depth, 1, 1), weight(2 * c.width, c.depth, 1 / std::sqrt(double(c.depth)), 2);
    Matrix gate_up(c.rows, 2 * c.width, 0, 0), y(c.rows, c.width, 0, 0);
    SwigluForwardJob job;
    job.a = x.tiles(0, c.rows, kBlockRows);
    job.gate_weight = weight.tiles(0, c.width, SwigluForwardJob::kColumns);
    job.up_weight = weight.tiles(c.width, c.width, SwigluForwardJob::kColumns);
    job.order = order_of<SwigluForwardJob>(c);
    job.depth_blocks = int(div_ceil<int64_t>(c.depth, kTileDepth));
    job.out = {gate_up.values.data(), y.values.data(), int(gate_up.stride), int(y.stride), c.rows, c.width};
    run(c, GetParam(), job);
    int64_t wrong = 0;
    for (int64_t r = 0; r < c.rows; ++r) {
      for (int64_t f = 0; f < 2 * c.width; ++f) {
        double sum = 0;
        for (int64_t k = 0; k < c.depth; ++k) sum += x(r, k) * weight(f, k);
        wrong += !close(gate_up(r, f), sum, 1);
      }
      for (int64_t f = 0; f < c.width; ++f) {
        const double gate = gate_up(r, f), up = gate_up(r, c.width + f);
        wrong += !close(y(r, f), up * gate * sigmoid_of(gate), 1);
      }
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_TRUE(gate_up.kept_its_edges() && y.kept_its_edges());
  }
}

TEST_P(SwigluJobs, BackwardIsProductAndGradients) {
  for (const Case& c : kCases) {
    for (bool again : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << c.rows << " x " << c.depth << " x " << c.width << " again " << again);
      const Matrix dy(c.rows, c.depth, 1, 1), weight(c.depth, c.width, 1 / std::sqrt(double(c.depth)), 2);
      const Matrix before(c.rows, 2 * c.width, 1.5, 3);
      Matrix gate_up = before, y(c.rows, c.width, 0, 0);
      SwigluBackwardJob job;
      job.a = dy.tiles(0, c.rows, kBlockRows);
      job.weight = weight.tiles(0, c.depth, kTileDepth);
      job.order = order_of<SwigluBackwardJob>(c);
      job.depth_blocks = int(div_ceil<int64_t>(c.depth, kTileDepth));
      job.out = {gate_up.values.data(),
                 again ? y.values.data() : nullptr,
                 int(gate_up.stride),
                 int(y.stride),
                 c.rows,
                 c.width};
      run(c, GetParam(), job);
      int64_t wrong = 0;
      for (int64_t r = 0; r < c.rows; ++r) {
        for (int64_t f = 0; f < c.width; ++f) {
          double dact = 0;
          for (int64_t k = 0; k < c.depth; ++k) dact += dy(r, k) * weight(k, f);
          const double gate = before(r, f), up = before(r, c.width + f), s = sigmoid_of(gate);
          wrong += !close(gate_up(r, f), dact * up * (s + gate * s * (1 - s)), 3);
          wrong += !close(gate_up(r, c.width + f), dact * gate * s, 3);
          wrong += again ? !close(y(r, f), up * gate * s, 1) : y(r, f) != kUntouched;
        }
      }
      EXPECT_EQ(wrong, 0);
      EXPECT_TRUE(gate_up.kept_its_edges() && y.kept_its_edges());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, SwigluJobs, ::testing::Range(1u, ZENO_FULL_TESTS ? 21u : 4u));

}  // namespace
}  // namespace zeno::cuda
