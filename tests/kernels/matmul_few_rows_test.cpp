// Products of a few rows take another way through the matrix. Bits must not show it: they are those of the
// same rows inside a larger product.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/kernels/every_target.h"
#include "tests/kernels/host_tensor.h"
#include "zeno/kernels/matmul.h"

namespace zeno {
namespace {

constexpr int64_t kMany = 20;  // rows of the product that is packed

struct Shape {
  int64_t n, k;
};

// The first `rows` of the product, as bytes.
Bytes product(const Shape& s, DType dtype, int64_t rows, bool extras, int threads, DType out) {
  HostTensor a(dtype, kMany, s.k, s.k + 3), b(dtype, s.n, s.k, s.k + 5), c(out, kMany, s.n);
  HostTensor bias(dtype, 1, s.n), residual(out, kMany, s.n);
  a.random(1);
  b.random(2);
  bias.random(3);
  residual.random(4);
  const Tensor left = a.view().slice(0, rows), to = c.view().slice(0, rows);
  run_on(threads, [&](StreamRef stream) {
    matmul(stream, {.a = left,
                    .b = b.view(),
                    .c = to,
                    .transpose_b = true,
                    .bias = extras ? bias.view() : Tensor{},
                    .residual = extras ? residual.view().slice(0, rows) : Tensor{}});
  });
  Bytes bytes = c.bytes();
  return bytes;
}

TEST(MatmulFewRows, HasTheBitsOfALargerProduct) {
  const Shape shapes[] = {{1, 1}, {5, 3}, {48, 64}, {33, 385}, {70, 391}, {17, 1030}};
  on_every_target([&](int64_t) {
    for (const DType dtype : kFloatTypes) {
      for (const Shape& s : shapes) {
        const bool extras = s.n % 2 == 1;
        const Bytes many = product(s, dtype, kMany, extras, 1, dtype);
        for (const int64_t rows : {1, 2, 3, 5, 8}) {
          const Bytes few = product(s, dtype, rows, extras, rows % 2 == 0 ? 3 : 1, dtype);
          ASSERT_EQ(std::memcmp(few.data(), many.data(), size_t(rows * s.n) * size_of(dtype)), 0)
              << name_of(dtype) << " " << rows << " rows, N " << s.n << ", K " << s.k;
        }
      }
    }
  });
}

TEST(MatmulFewRows, WritesLogitsInFp32) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Bytes few = product({50, 96}, dtype, 1, false, 2, DType::f32);
    const Bytes many = product({50, 96}, dtype, kMany, false, 2, DType::f32);
    EXPECT_EQ(std::memcmp(few.data(), many.data(), 50 * sizeof(float)), 0) << name_of(dtype);
  }
}

}  // namespace
}  // namespace zeno
