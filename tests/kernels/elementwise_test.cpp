#include "zeno/kernels/elementwise.h"

#include <bit>
#include <limits>

#include "tests/kernels/every_target.h"
#include "tests/kernels/host_tensor.h"

namespace zeno {
namespace {

// Floats that matter: random patterns, all 16-bit patterns widened, halfway points and their neighbours.
std::vector<float> interesting_floats() {
  std::vector<float> out;
  for (uint32_t i = 0; i < 1u << 16; ++i) {
    out.push_back(std::bit_cast<float>(uint32_t(random_bits(1, 2, i))));
    for (uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      out.push_back(std::bit_cast<float>(i << 16 | low));
    F16 half;
    half.bits = uint16_t(i);
    const uint32_t wide = std::bit_cast<uint32_t>(float(half));
    for (uint32_t low : {0u, 0xfffu, 0x1000u, 0x1001u}) out.push_back(std::bit_cast<float>(wide | low));
  }
  for (uint32_t i = 0; i < 1u << 14; ++i) {  // around the denormals of fp16
    const float x = std::ldexp(float(i), -27);
    for (float y : {x, std::nextafter(x, 1.0f), std::nextafter(x, -1.0f), -x}) out.push_back(y);
  }
  return out;
}

template <class Half>
void expect_narrowing_like_scalar() {
  std::vector<float> x = interesting_floats();
  std::vector<Half> y(x.size());
  run_on(2, [&](StreamRef s) {
    cast(s, {x.data(), DType::f32, 1, int64_t(x.size())}, {y.data(), dtype_of<Half>(), 1, int64_t(y.size())});
  });
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(y[i].bits, Half(x[i]).bits) << std::hex << std::bit_cast<uint32_t>(x[i]);
  }
}

template <class Half>
void expect_widening_like_scalar() {
  std::vector<Half> x(1 << 16);
  for (uint32_t i = 0; i < x.size(); ++i) x[i].bits = uint16_t(i);
  std::vector<float> y(x.size());
  run_on(2, [&](StreamRef s) {
    cast(s, {x.data(), dtype_of<Half>(), 1, 1 << 16}, {y.data(), DType::f32, 1, 1 << 16});
  });
  for (size_t i = 0; i < x.size(); ++i) {
    const float expected = float(x[i]);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(y[i])) << i;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(y[i]), std::bit_cast<uint32_t>(expected)) << i;
    }
  }
}

TEST(Cast, NarrowsWithTheBitsOfTheScalarTypes) {
  on_every_target([](int64_t) {
    expect_narrowing_like_scalar<BF16>();
    expect_narrowing_like_scalar<F16>();
  });
}

TEST(Cast, WidensExactly) {
  on_every_target([](int64_t) {
    expect_widening_like_scalar<BF16>();
    expect_widening_like_scalar<F16>();
  });
}

TEST(Cast, AllPairsAndOddSizes) {
  for (DType from : kFloatTypes) {
    for (DType to : kFloatTypes) {
      for (int64_t n : {1, 5, 16, 31, 33, 70001}) {
        HostTensor x(from, 1, n), y(to, 1, n);
        x.random(uint64_t(n));
        run_on(3, [&](StreamRef s) { cast(s, x.view(), y.view()); });
        for (int64_t i = 0; i < n; ++i) {
          const double expected =
              dispatch_float(to, [&]<class T>() { return double(float(T(float(x.get(0, i))))); });
          ASSERT_EQ(y.get(0, i), expected);
        }
      }
    }
  }
}

TEST(Cast, ResultsLargerThanTheCacheGiveTheSameBits) {
  const int64_t n = (17 << 20) + 5;  // 34 MiB of results: stores go past the cache
  std::vector<float, LineAllocator<float>> x(static_cast<size_t>(n));
  std::vector<BF16, LineAllocator<BF16>> y(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::bit_cast<float>(uint32_t(i * 2654435761u));
  run_on(2, [&](StreamRef s) { cast(s, {x.data(), DType::f32, 1, n}, {y.data(), DType::bf16, 1, n}); });
  size_t wrong = 0;
  for (size_t i = 0; i < x.size(); ++i) wrong += y[i].bits != BF16(x[i]).bits;
  EXPECT_EQ(wrong, 0u);
}

TEST(Add, SumsInFp32AndRoundsOnce) {
  for (DType a_type : kFloatTypes) {
    for (DType b_type : kFloatTypes) {
      for (DType y_type : kFloatTypes) {
        HostTensor a(a_type, 1, 1003), b(b_type, 1, 1003), y(y_type, 1, 1003);
        a.random(1);
        b.random(2, 3.0);
        run_on(2, [&](StreamRef s) { add(s, a.view(), b.view(), y.view()); });
        for (int64_t i = 0; i < 1003; ++i) {
          const float sum = float(a.get(0, i)) + float(b.get(0, i));
          ASSERT_EQ(y.get(0, i), dispatch_float(y_type, [&]<class T>() { return double(float(T(sum))); }));
        }
      }
    }
  }
}

TEST(Add, MayWriteOverEitherTerm) {
  HostTensor a(DType::f32, 1, 517), b(DType::f32, 1, 517), y(DType::f32, 1, 517);
  a.random(1);
  b.random(2);
  HostTensor over_a = a, over_b = b;
  run_on(2, [&](StreamRef s) {
    add(s, a.view(), b.view(), y.view());
    add(s, over_a.view(), b.view(), over_a.view());
    add(s, a.view(), over_b.view(), over_b.view());
  });
  EXPECT_EQ(over_a.bytes(), y.bytes());
  EXPECT_EQ(over_b.bytes(), y.bytes());
}

TEST(Scale, MultipliesInPlaceAlikeForAnyThreadCount) {
  for (DType dtype : kFloatTypes) {
    HostTensor x(dtype, 1, 100003);
    x.random(5);
    const HostTensor before = x;
    run_on(1, [&](StreamRef s) { scale(s, x.view(), 0.37f); });
    for (int64_t i = 0; i < x.cols(); i += 977) {
      const float product = float(before.get(0, i)) * 0.37f;
      ASSERT_EQ(x.get(0, i), dispatch_float(dtype, [&]<class T>() { return double(float(T(product))); }));
    }
    for (int threads : {2, 3}) {
      HostTensor again = before;
      run_on(threads, [&](StreamRef s) { scale(s, again.view(), 0.37f); });
      EXPECT_EQ(again.bytes(), x.bytes());
    }
  }
}

}  // namespace
}  // namespace zeno
