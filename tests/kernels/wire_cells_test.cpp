// Values in eight and four bits for the wire: the error is at most half a step of the cell, every instruction
// set makes the same bytes, and a cell decodes to the same wherever it lies.
#include "zeno/kernels/wire_cells.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/kernels/every_target.h"
#include "tests/kernels/host_tensor.h"
#include "zeno/base/rng.h"

namespace zeno {
namespace {

constexpr std::array kCodes{WireCode::int8, WireCode::int4};
constexpr std::array kFloats{DType::f32, DType::bf16, DType::f16};

// Cells of many magnitudes; zeros, ties and the smallest numbers among them.
std::vector<float> values_of(int64_t cells, uint64_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < cells * kWireCell; ++i) {
    const int64_t cell = i / kWireCell;
    const float size = std::ldexp(1.0f, int(cell * 7 % 41) - 20);
    float value = size * float(random_normal(seed, 1, uint64_t(i)));
    if (cell % 9 == 3) value = 0;
    if (cell % 9 == 5) value = size * (float(i % kWireCell) - 31.5f);  // ties, with a largest of 31.5
    if (cell % 9 == 7 && i % 3 == 0) value = 0;
    values.push_back(value);
  }
  return values;
}

struct Coded {
  std::vector<std::byte> cells;
  std::vector<float> values, decoded;  // as the dtype has them
};

Coded coded(WireCode code, DType dtype, const std::vector<float>& values, int threads = 1) {
  const Stream stream({.name = "wire", .threads = threads});
  const int64_t count = int64_t(values.size());
  std::vector<std::byte> x(values.size() * size_of(dtype)), y(x.size());
  Coded result{std::vector<std::byte>(wire_bytes(code, count)), {}, {}};
  dispatch_float(dtype, [&]<class T>() {
    std::transform(values.begin(), values.end(), reinterpret_cast<T*>(x.data()),
                   [](float v) { return T(v); });
  });
  wire_encode(stream, code, {x.data(), dtype, 1, count}, result.cells.data());
  wire_decode(stream, code, result.cells.data(), {y.data(), dtype, 1, count});
  stream.synchronize();
  dispatch_float(dtype, [&]<class T>() {
    for (int64_t i = 0; i < count; ++i) {
      result.values.push_back(float(reinterpret_cast<const T*>(x.data())[i]));
      result.decoded.push_back(float(reinterpret_cast<const T*>(y.data())[i]));
    }
  });
  return result;
}

TEST(WireCells, AreOffByHalfAStepAtMost) {
  const std::vector<float> values = values_of(123, 3);
  for (const WireCode code : kCodes) {
    const Coded result = coded(code, DType::f32, values);
    for (size_t begin = 0; begin < values.size(); begin += size_t(kWireCell)) {
      double largest = 0;
      for (size_t i = begin; i < begin + size_t(kWireCell); ++i)
        largest = std::max(largest, std::abs(double(values[i])));
      const double step = largest / wire_limit(code);
      for (size_t i = begin; i < begin + size_t(kWireCell); ++i)
        EXPECT_LE(std::abs(double(result.decoded[i]) - double(values[i])), step * (0.5 + 1e-5)) << i;
    }
  }
}

TEST(WireCells, RoundHalvesToEven) {
  std::vector<float> values(size_t(kWireCell), 0);
  values[0] = 127;  // a step of 1
  for (int i = 1; i < int(kWireCell); ++i) values[size_t(i)] = float(i) - 31.5f;
  const Coded result = coded(WireCode::int8, DType::f32, values);
  for (size_t i = 1; i < values.size(); ++i) EXPECT_EQ(result.decoded[i], std::nearbyint(values[i]));
}

// Every target, type and number of threads makes the bytes of the first.
TEST(WireCells, EveryTargetMakesTheSameBytes) {
  const std::vector<float> values = values_of(1500, 5);
  for (const WireCode code : kCodes) {
    for (const DType dtype : kFloats) {
      const Coded reference = coded(code, dtype, values);
      on_every_target([&](int64_t) {
        const Coded result = coded(code, dtype, values, 3);
        EXPECT_EQ(result.cells, reference.cells);
        EXPECT_EQ(0, std::memcmp(result.decoded.data(), reference.decoded.data(), values.size() * 4));
      });
    }
  }
}

// What a cell decodes to is a function of its own values: any cut between cells gives the same.
TEST(WireCells, KnowNothingOfTheirNeighbours) {
  const std::vector<float> values = values_of(40, 7);
  const Coded whole = coded(WireCode::int8, DType::bf16, values);
  for (const int64_t cut : {1, 7, 39}) {
    const std::vector<float> rest(values.begin() + cut * kWireCell, values.end());
    const Coded part = coded(WireCode::int8, DType::bf16, rest);
    EXPECT_TRUE(
        std::equal(part.decoded.begin(), part.decoded.end(), whole.decoded.begin() + cut * kWireCell));
  }
}

TEST(WireCells, TellOfValuesThatAreNotFinite) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf(""), -std::nanf("")}) {
    std::vector<float> values = values_of(3, 1);
    values[70] = bad;
    for (const WireCode code : kCodes) {
      const Coded result = coded(code, DType::f32, values);
      for (int64_t i = 0; i < 3 * kWireCell; ++i)
        EXPECT_EQ(std::isnan(result.decoded[size_t(i)]), i / kWireCell == 1);
    }
  }
}

// The documented order, written as the document says it.
float tree(const std::vector<float>& values, size_t begin, size_t end) {
  if (end - begin == 1) return values[begin];
  size_t half = 1;
  while (half * 2 < end - begin) half *= 2;
  return tree(values, begin, begin + half) + tree(values, begin + half, end);
}

TEST(WireCells, SumsAreThoseOfTheTree) {
  const int64_t cells = 5, count = cells * kWireCell;
  for (const WireCode code : kCodes) {
    for (const int slices : {1, 2, 3, 4, 5, 7, 8, 13, 64, 100}) {
      std::vector<std::byte> all;
      std::vector<std::vector<float>> decoded;
      for (int s = 0; s < slices; ++s) {
        const Coded slice = coded(code, DType::f32, values_of(cells, uint64_t(s)));
        all.insert(all.end(), slice.cells.begin(), slice.cells.end());
        decoded.push_back(slice.decoded);
      }
      on_every_target([&](int64_t) {
        for (const bool accumulate : {false, true}) {
          std::vector<float> y(size_t(count), 0.125f);
          const Stream stream({.name = "sum", .threads = 2});
          wire_sum(stream, {code,
                            all.data(),
                            slices,
                            {reinterpret_cast<std::byte*>(y.data()), DType::f32, 1, count},
                            accumulate});
          stream.synchronize();
          for (size_t i = 0; i < size_t(count); ++i) {
            std::vector<float> terms;
            for (const std::vector<float>& slice : decoded) terms.push_back(slice[i]);
            const float sum = tree(terms, 0, terms.size());
            ASSERT_EQ(y[i], accumulate ? 0.125f + sum : sum) << slices << " slices, element " << i;
          }
        }
      });
    }
  }
}

TEST(WireCells, TakeTheirFormula) {
  EXPECT_EQ(wire_bytes(WireCode::int8, 640), 680u);
  EXPECT_EQ(wire_bytes(WireCode::int4, 640), 360u);
}

}  // namespace
}  // namespace zeno
