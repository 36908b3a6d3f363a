#include "zeno/kernels/matmul.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/support/kernel_stream.h"

namespace zeno {
namespace {

// A matrix with a row stride wider than its rows; the gap holds NaN and must never be read or written.
struct Matrix {
  DType dtype;
  int64_t rows, cols, stride;
  std::vector<float> wide;       // [rows, stride] when fp32
  std::vector<uint16_t> narrow;  // [rows, stride] when bf16 or fp16

  Matrix(DType type, int64_t height, int64_t width, int64_t gap = 0)
      : dtype(type), rows(height), cols(width), stride(width + gap) {
    const size_t count = size_t(rows * stride);
    if (dtype == DType::f32) {
      wide.assign(count, std::numeric_limits<float>::quiet_NaN());
    } else {
      narrow.assign(count, 0xffff);
    }
  }
  Matrix(DType type, int64_t height, int64_t width, int64_t gap, uint32_t seed)
      : Matrix(type, height, width, gap) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> value(-1, 1);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) set(i, j, value(random));
    }
  }

  void set(int64_t i, int64_t j, float v) {
    const size_t at = size_t(i * stride + j);
    if (dtype == DType::f32) wide[at] = v;
    if (dtype == DType::bf16) narrow[at] = BF16(v).bits;
    if (dtype == DType::f16) narrow[at] = F16(v).bits;
  }
  float get(int64_t i, int64_t j) const {
    const size_t at = size_t(i * stride + j);
    if (dtype == DType::f32) return wide[at];
    if (dtype == DType::bf16) return float(std::bit_cast<BF16>(narrow[at]));
    return float(std::bit_cast<F16>(narrow[at]));
  }
  Tensor view() {
    void* data = dtype == DType::f32 ? static_cast<void*>(wide.data()) : narrow.data();
    return {data, dtype, rows, cols, stride};
  }
  Matrix transposed(int64_t gap) const {
    Matrix t(dtype, cols, rows, gap);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) t.set(j, i, get(i, j));
    }
    return t;
  }
  // Every bit, the gap between rows included.
  bool same_bits(const Matrix& o) const {
    const auto same = [](float x, float y) {
      return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
    };
    return std::equal(wide.begin(), wide.end(), o.wide.begin(), o.wide.end(), same) && narrow == o.narrow;
  }
};

float epsilon(DType dtype) {
  return dtype == DType::f32 ? 0x1p-24f : dtype == DType::bf16 ? 0x1p-8f : 0x1p-11f;
}

// Expected value and the error allowed: fp32 sums of K terms, one rounding to the dtype of C.
void expect_product(const Matrix& a, const Matrix& b, const Matrix& c,
                    double extra(int64_t, int64_t) = nullptr) {
  for (int64_t i = 0; i < c.rows; ++i) {
    for (int64_t j = 0; j < c.cols; ++j) {
      double sum = extra ? extra(i, j) : 0, size = std::abs(sum);
      for (int64_t k = 0; k < a.cols; ++k) {
        const double term = double(a.get(i, k)) * double(b.get(k, j));
        sum += term;
        size += std::abs(term);
      }
      const double bound =
          std::abs(sum) * epsilon(c.dtype) + size * 0x1p-24 * (4 + std::sqrt(double(a.cols))) + 1e-7;
      ASSERT_NEAR(c.get(i, j), sum, bound) << "at " << i << ", " << j << " of " << c.rows << "x" << c.cols;
    }
  }
}

struct Shape {
  int64_t m, n, k;
};
const Shape kShapes[] = {{1, 1, 1},     {1, 7, 3},     {5, 1, 17},   {8, 48, 256},
                         {9, 49, 257},  {7, 47, 255},  {64, 96, 5},  {33, 130, 70},
                         {20, 17, 600}, {3, 800, 300}, {1100, 5, 9}, {130, 100, 513}};

TEST(Matmul, MatchesReferenceInEveryForm) {
  KernelStream stream(2);
  for (const Shape& s : kShapes) {
    const Matrix a(DType::f32, s.m, s.k, 3, 1), b(DType::f32, s.k, s.n, 5, 2);
    Matrix first(DType::f32, s.m, s.n, 2);
    for (int form = 0; form < 4; ++form) {
      const bool ta = form & 1, tb = form & 2;
      Matrix left = ta ? a.transposed(1) : a, right = tb ? b.transposed(4) : b, c(DType::f32, s.m, s.n, 2);
      matmul(stream.ref(),
             {.a = left.view(), .b = right.view(), .c = c.view(), .transpose_a = ta, .transpose_b = tb});
      stream.sync();
      if (form == 0) {
        expect_product(a, b, c);
        first = c;
      }
      EXPECT_TRUE(c.same_bits(first)) << "form " << form << " of " << s.m << "x" << s.n << "x" << s.k;
    }
  }
}

TEST(Matmul, EveryMixOfStorageTypes) {
  KernelStream stream(2);
  const DType types[] = {DType::f32, DType::bf16, DType::f16};
  for (DType ta : types) {
    for (DType tb : types) {
      for (DType tc : types) {
        const Matrix a(ta, 30, 300, 1, 3), b(tb, 300, 70, 2, 4);
        for (bool transposed : {false, true}) {
          Matrix left = transposed ? a.transposed(0) : a, right = transposed ? b.transposed(0) : b,
                 c(tc, 30, 70, 1);
          matmul(stream.ref(), {.a = left.view(),
                                .b = right.view(),
                                .c = c.view(),
                                .transpose_a = transposed,
                                .transpose_b = transposed});
          stream.sync();
          expect_product(a, b, c);
        }
      }
    }
  }
}

// A sum over several pieces of K must be rounded to 16 bits once: the same as rounding the fp32 result.
TEST(Matmul, RoundsOnce) {
  KernelStream stream(2);
  Matrix a(DType::f32, 37, 1000, 0, 5), b(DType::f32, 1000, 61, 0, 6), wide(DType::f32, 37, 61);
  matmul(stream.ref(), {.a = a.view(), .b = b.view(), .c = wide.view()});
  for (DType dtype : {DType::bf16, DType::f16}) {
    Matrix c(dtype, 37, 61), expected(dtype, 37, 61);
    matmul(stream.ref(), {.a = a.view(), .b = b.view(), .c = c.view()});
    stream.sync();
    for (int64_t i = 0; i < 37; ++i) {
      for (int64_t j = 0; j < 61; ++j) expected.set(i, j, wide.get(i, j));
    }
    EXPECT_TRUE(c.same_bits(expected));
  }
}

// accumulate, bias and residual add to the finished fp32 product, in that meaning whatever K is cut into.
TEST(Matmul, FusedTermsAddToTheFinishedProduct) {
  KernelStream stream(2);
  for (DType dtype : {DType::f32, DType::bf16}) {
    for (int64_t k : {int64_t(0), int64_t(40), int64_t(700)}) {
      Matrix a(DType::f32, 50, k, 1, 7), b(DType::f32, k, 100, 1, 8), product(DType::f32, 50, 100);
      Matrix bias(dtype, 1, 100, 0, 9), residual(dtype, 50, 100, 3, 10), start(dtype, 50, 100, 1, 11);
      matmul(stream.ref(), {.a = a.view(), .b = b.view(), .c = product.view()});
      for (int mode = 0; mode < 8; ++mode) {
        Matrix c = start, expected = start;
        Matmul op{.a = a.view(), .b = b.view(), .c = c.view(), .accumulate = (mode & 1) != 0};
        if (mode & 2) op.bias = bias.view();
        if (mode & 4) op.residual = residual.view();
        matmul(stream.ref(), op);
        stream.sync();
        for (int64_t i = 0; i < 50; ++i) {
          for (int64_t j = 0; j < 100; ++j) {
            float sum = product.get(i, j);
            if (mode & 2) sum += bias.get(0, j);
            if (mode & 1) sum += start.get(i, j);
            if (mode & 4) sum += residual.get(i, j);
            expected.set(i, j, sum);
          }
        }
        EXPECT_TRUE(c.same_bits(expected)) << "mode " << mode << ", K " << k << ", " << name_of(dtype);
      }
    }
  }
}

TEST(Matmul, ResidualMayBeC) {
  KernelStream stream(2);
  Matrix a(DType::f32, 20, 300, 0, 12), b(DType::f32, 300, 100, 0, 13), c(DType::f32, 20, 100, 0, 14);
  Matrix sum = c;
  matmul(stream.ref(), {.a = a.view(), .b = b.view(), .c = c.view(), .residual = c.view()});
  matmul(stream.ref(), {.a = a.view(), .b = b.view(), .c = sum.view(), .accumulate = true});
  stream.sync();
  EXPECT_TRUE(c.same_bits(sum));
}

TEST(Matmul, ThreadsAndSlicesDoNotChangeBits) {
  Matrix a(DType::f32, 301, 530, 1, 15), b(DType::bf16, 530, 211, 1, 16), first(DType::f32, 301, 211);
  for (int threads : {1, 2, 3, 5}) {
    KernelStream stream(threads);
    Matrix c(DType::f32, 301, 211);
    matmul(stream.ref(), {.a = a.view(), .b = b.view(), .c = c.view()});
    stream.sync();
    if (threads == 1) first = c;
    EXPECT_TRUE(c.same_bits(first)) << threads << " threads";
  }
  KernelStream stream(2);
  for (const auto& [begin, count] : {std::pair{0, 1}, {3, 9}, {100, 201}, {297, 4}}) {
    Matrix rows(DType::f32, count, 211), cols(DType::f32, 301, count > 211 ? 211 : count);
    const int64_t from = begin % 7;
    matmul(stream.ref(), {.a = a.view().slice(begin, count), .b = b.view(), .c = rows.view()});
    matmul(stream.ref(), {.a = a.view(),
                          .b = b.view().columns(from, cols.cols - 7 > 0 ? cols.cols - 7 : cols.cols),
                          .c = cols.view().columns(0, cols.cols - 7 > 0 ? cols.cols - 7 : cols.cols)});
    stream.sync();
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t j = 0; j < 211; ++j) ASSERT_EQ(rows.get(i, j), first.get(begin + i, j));
    }
    for (int64_t i = 0; i < 301; ++i) ASSERT_EQ(cols.get(i, 0), first.get(i, from));
  }
}

// Every SIMD target this CPU can run, the scalar one included.
TEST(Matmul, EverySimdTarget) {
  const int64_t supported = hwy::SupportedTargets();
  Matrix a(DType::bf16, 21, 290, 1, 17), b(DType::f16, 290, 110, 1, 18);
  for (int64_t left = supported; left != 0; left &= left - 1) {
    hwy::SetSupportedTargetsForTest(left & -left);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    KernelStream stream(2);
    for (bool transposed : {false, true}) {
      Matrix at = transposed ? a.transposed(0) : a, bt = transposed ? b.transposed(0) : b,
             c(DType::bf16, 21, 110);
      matmul(stream.ref(), {.a = at.view(),
                            .b = bt.view(),
                            .c = c.view(),
                            .transpose_a = transposed,
                            .transpose_b = transposed});
      stream.sync();
      expect_product(a, b, c);
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST(Matmul, EmptyShapes) {
  KernelStream stream(2);
  Matrix a(DType::f32, 4, 0), b(DType::f32, 0, 5), c(DType::f32, 4, 5, 0, 19);
  Matrix none(DType::f32, 0, 5), rows(DType::f32, 0, 7), full(DType::f32, 7, 5, 0, 20);
  matmul(stream.ref(), {.a = a.view(), .b = b.view(), .c = c.view()});
  matmul(stream.ref(), {.a = rows.view(), .b = full.view(), .c = none.view()});
  stream.sync();
  for (float v : c.wide) EXPECT_EQ(v, 0.0f);
}

TEST(Matmul, RefusesWrongShapesAndMissingScratch) {
  KernelStream stream(2);
  Matrix a(DType::f32, 4, 6, 0, 21), b(DType::f32, 5, 3, 0, 22), c(DType::f32, 4, 3);
  EXPECT_THROW(matmul(stream.ref(), {.a = a.view(), .b = b.view(), .c = c.view()}), Error);
  Stream bare(StreamOptions{.device = {}, .name = "bare"});
  Matrix good(DType::f32, 6, 3, 0, 23);
  matmul(bare, {.a = a.view(), .b = good.view(), .c = c.view()});
  EXPECT_THROW(bare.synchronize(), Error);
}

TEST(BiasBackward, SumsRowsIntoTheGradient) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    for (DType gradient : {DType::f32, DType::bf16, DType::f16}) {
      Matrix dy(dtype, 300, 1030, 2, 24), first(gradient, 1, 1030, 0, 25);
      const Matrix start = first;
      for (int threads : {1, 2, 3}) {
        KernelStream stream(threads);
        Matrix dbias = start;
        bias_backward(stream.ref(), dy.view(), dbias.view());
        stream.sync();
        if (threads == 1) first = dbias;
        EXPECT_TRUE(dbias.same_bits(first));
      }
      for (int64_t j = 0; j < 1030; ++j) {
        double sum = start.get(0, j);
        for (int64_t i = 0; i < 300; ++i) sum += dy.get(i, j);
        ASSERT_NEAR(first.get(0, j), sum, 4e-5 + std::abs(sum) * epsilon(gradient));
      }
    }
  }
}

}  // namespace
}  // namespace zeno
