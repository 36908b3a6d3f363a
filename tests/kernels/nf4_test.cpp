// Four-bit weights: the golden file of an independent program (whose codes equal those of bitsandbytes), the
// error that a level and a scale may have, and the same bits on every instruction set.
#include "zeno/kernels/nf4.h"

#include <algorithm>
#include <memory>

#include "tests/kernels/every_target.h"
#include "tests/kernels/host_tensor.h"
#include "tests/support/golden.h"

namespace zeno {
namespace {

std::vector<Nf4Cell> quantised(std::span<const float> values) {
  std::vector<Nf4Cell> cells(size_t(nf4_cells(int64_t(values.size()))));
  nf4_quantise(values, cells.data());
  return cells;
}

std::vector<float> decoded(const std::vector<Nf4Cell>& cells, size_t count) {
  std::vector<float> values(count);
  nf4_decode_on_host(cells.data(), values);
  return values;
}

std::vector<float> weights(int64_t count, uint64_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const double size = i / kNf4Block % 7 == 3 ? 0.4 : 0.02;
    values.push_back(float(size * random_normal(seed, 1, uint64_t(i))));
  }
  return values;
}

bool same(const std::vector<Nf4Cell>& a, const std::vector<Nf4Cell>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(Nf4Cell)) == 0;
}

TEST(Nf4, IsTheGoldenFile) {
  const test::Golden golden("nf4.safetensors");
  const std::vector<float> values = golden.floats("values"), expected = golden.floats("decoded");
  on_every_target([&](int64_t) {
    const std::vector<Nf4Cell> cells = quantised(values);
    ASSERT_EQ(cells.size(), 1u);
    const std::vector<int32_t> codes = golden.ints("codes"), scales = golden.ints("scales");
    EXPECT_TRUE(std::equal(codes.begin(), codes.end(), cells[0].codes.begin()));
    EXPECT_TRUE(std::equal(scales.begin(), scales.end(), cells[0].scales.begin()));
    EXPECT_EQ(cells[0].base, golden.floats("base")[0]);
    EXPECT_EQ(cells[0].step, golden.floats("step")[0]);
    EXPECT_EQ(decoded(cells, values.size()), expected);
  });
}

// Every target, type and number of threads decodes what the host does, rounded once; beyond the values: zero.
TEST(Nf4, DecodesAlikeEverywhere) {
  const std::vector<float> values = weights(2 * kNf4Cell + 777, 3);
  const std::vector<Nf4Cell> reference = quantised(values);
  const std::vector<float> expected = decoded(reference, 3 * kNf4Cell);
  EXPECT_TRUE(std::all_of(expected.begin() + int64_t(values.size()), expected.end(),
                          [](float value) { return value == 0; }));
  on_every_target([&](int64_t) {
    const std::vector<Nf4Cell> cells = quantised(values);
    EXPECT_TRUE(same(cells, reference));
    for (DType dtype : kFloatTypes) {
      HostTensor y(dtype, 3, kNf4Cell), rounded(dtype, 3, kNf4Cell);
      for (int64_t i = 0; i < 3 * kNf4Cell; ++i) rounded.set(i / kNf4Cell, i % kNf4Cell, expected[size_t(i)]);
      run_on(dtype == DType::f32 ? 1 : 2, [&](StreamRef s) { nf4_decode(s, cells.data(), y.view()); });
      EXPECT_EQ(y.bytes(), rounded.bytes()) << name_of(dtype);
    }
  });
}

// Half the widest gap between levels (-1 and -0.696), and the scale's own rounding.
TEST(Nf4, ErrorsAreBounded) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const std::vector<float> values = weights(kNf4Cell + 5 * kNf4Block, seed);
    const std::vector<Nf4Cell> cells = quantised(values);
    const std::vector<float> back = decoded(cells, values.size());
    double squares = 0, errors = 0;
    for (size_t begin = 0; begin < values.size(); begin += kNf4Block) {
      const Nf4Cell& cell = cells[begin / kNf4Cell];
      const uint8_t q = cell.scales[begin % kNf4Cell / kNf4Block];
      float largest = 0;
      for (size_t i = begin; i < begin + kNf4Block; ++i) largest = std::max(largest, std::abs(values[i]));
      const double scale_error = std::abs(nf4_scale(cell.base, cell.step, q) - largest);
      // The next q up or down is 2q + 1 steps away.
      EXPECT_LE(scale_error, cell.step * (q + 0.51) + 1e-6 * largest);
      for (size_t i = begin; i < begin + kNf4Block; ++i) {
        const double error = std::abs(double(back[i]) - double(values[i]));
        EXPECT_LE(error, 0.1520 * largest + scale_error);
        errors += error * error;
        squares += double(values[i]) * double(values[i]);
      }
    }
    EXPECT_LT(std::sqrt(errors / squares), 0.1);
  }
}

// A large outlier costs its own block, not the other 255 of the cell.
TEST(Nf4, AnOutlierDoesNotCoarsenOtherScales) {
  std::vector<float> values = weights(kNf4Cell, 9);
  const auto error_of = [&](const std::vector<float>& x) {
    const std::vector<float> back = decoded(quantised(x), x.size());
    double sum = 0;
    for (size_t i = kNf4Block; i < x.size(); ++i) sum += std::pow(double(back[i]) - double(x[i]), 2);
    return std::sqrt(sum);
  };
  const double before = error_of(values);
  values[5] = 20;
  EXPECT_LT(error_of(values), 1.02 * before);
}

// What a cell decodes to depends on its own elements only.
TEST(Nf4, CellsAreIndependent) {
  const std::vector<float> values = weights(3 * kNf4Cell + 100, 5);
  const std::vector<Nf4Cell> whole = quantised(values);
  const std::vector<Nf4Cell> tail = quantised(std::span(values).subspan(2 * kNf4Cell));
  EXPECT_TRUE(same({whole.begin() + 2, whole.end()}, tail));
}

TEST(Nf4, ExtremeBlocks) {
  std::vector<float> values(4 * kNf4Block, 0.0f);
  EXPECT_EQ(decoded(quantised(values), values.size()), values);
  values[0] = 1e-42f;  // denormal scale
  values[70] = -3e38f;
  for (size_t i = 128; i < values.size(); ++i) values[i] = i % 2 == 0 ? 0.25f : -0.25f;
  const std::vector<float> back = decoded(quantised(values), values.size());
  EXPECT_NEAR(back[70] / -3e38f, 1, 1e-6);
  EXPECT_TRUE(std::all_of(back.begin(), back.end(), [](float value) { return std::isfinite(value); }));
  EXPECT_EQ(nf4_bytes(kNf4Cell), 8464u);
  EXPECT_EQ(nf4_bytes(kNf4Cell + 1), 2 * 8464u);
}

}  // namespace
}  // namespace zeno
