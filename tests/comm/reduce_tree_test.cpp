#include "zeno/comm/reduce_tree.h"

#include <gtest/gtest.h>

#include <hwy/highway.h>

#include <cmath>
#include <cstring>

#include "contract_support.h"

namespace zeno::comm {
namespace {

using contract::get;
using contract::put;

struct Input {
  std::vector<std::vector<std::byte>> data;
  std::vector<const std::byte*> views;
};

Input make_input(int n, int64_t count, DType dtype, int64_t shift) {
  Input input;
  for (int r = 0; r < n; ++r) {
    auto& bytes = input.data.emplace_back(size_t(count + shift) * size_of(dtype));
    input.views.push_back(bytes.data() + size_t(shift) * size_of(dtype));
    for (int64_t i = 0; i < count; ++i) {
      put(bytes.data() + size_t(shift) * size_of(dtype), dtype, i, contract::value(r, i, n));
    }
  }
  return input;
}

void check(int n, int64_t count, DType dtype, DType out, bool accumulate, bool streaming, int64_t shift) {
  const Input input = make_input(n, count, dtype, shift);
  std::vector<std::byte> result(size_t(count + shift + 1) * size_of(out));
  std::byte* to = result.data() + size_t(shift) * size_of(out);
  for (int64_t i = 0; i <= count; ++i) put(to, out, i, 3.5f);
  tree_sum({to, out, dtype, accumulate, streaming}, input.views, count);
  for (int64_t i = 0; i < count; ++i) {
    const float sum = contract::expected_sum(n, i, n, dtype);
    const float want = contract::rounded(accumulate ? 3.5f + sum : sum, out);
    ASSERT_EQ(get(to, out, i), want) << "n " << n << " count " << count << " element " << i;
  }
  ASSERT_EQ(get(to, out, count), 3.5f) << "wrote past the end";
}

// Every instruction set this machine has gives the same bits.
class ReduceTree : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam());
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

std::vector<int64_t> targets() {
  std::vector<int64_t> all;
  int64_t bits = hwy::SupportedTargets() & HWY_TARGETS;
  while (bits != 0) {
    all.push_back(bits & -bits);
    bits &= bits - 1;
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Targets, ReduceTree, ::testing::ValuesIn(targets()),
                         [](const auto& test) { return std::string(hwy::TargetName(test.param)); });

TEST_P(ReduceTree, MatchesTheDocumentedTree) {
  for (const int n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const DType out : {DType::f32, DType::bf16, DType::f16}) check(n, 77, dtype, out, false, false, 1);
      for (const DType out : {DType::f32, DType::bf16, DType::f16}) check(n, 77, dtype, out, true, false, 0);
    }
  }
}

TEST_P(ReduceTree, StreamingGivesTheSame) {
  for (const int n : {1, 2, 5}) {
    for (const DType out : {DType::f32, DType::bf16, DType::f16})
      check(n, 9001, DType::bf16, out, false, true, 3);
    check(n, 9001, DType::f32, DType::f32, true, true, 3);
  }
}

TEST_P(ReduceTree, ManyInputs) { check(131, 3000, DType::bf16, DType::f32, false, false, 0); }

TEST_P(ReduceTree, NanAndInfinity) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const int64_t count = 40;
    std::vector<std::byte> a(size_t(count) * 4), b(size_t(count) * 4), out(size_t(count) * 4);
    for (int64_t i = 0; i < count; ++i) {
      put(a.data(), dtype, i, i % 3 == 0 ? nan : inf);
      put(b.data(), dtype, i, i % 3 == 1 ? -inf : 1.0f);
    }
    const std::vector<const std::byte*> views{a.data(), b.data()};
    tree_sum({out.data(), dtype, dtype, false, false}, views, count);
    for (int64_t i = 0; i < count; ++i) {
      const float got = get(out.data(), dtype, i);
      EXPECT_TRUE(i % 3 == 2 ? got == inf : std::isnan(got)) << i << ": " << got;
    }
  }
}

TEST_P(ReduceTree, InPlace) {
  Input input = make_input(3, 9001, DType::bf16, 0);
  tree_sum({input.data[1].data(), DType::bf16, DType::bf16, false, true}, input.views, 9001);
  for (int64_t i = 0; i < 9001; ++i) {
    ASSERT_EQ(get(input.data[1].data(), DType::bf16, i),
              contract::rounded(contract::expected_sum(3, i, 3, DType::bf16), DType::bf16));
  }
}

TEST_P(ReduceTree, CopiesAnyLengthAndAlignment) {
  for (const size_t bytes : {size_t(0), size_t(1), size_t(63), size_t(16384), size_t(50'001)}) {
    for (const size_t shift : {size_t(0), size_t(5)}) {
      std::vector<std::byte> from(bytes + shift + 1), to(bytes + shift + 1, std::byte(0x11));
      for (size_t i = 0; i < from.size(); ++i) from[i] = std::byte(i * 7);
      for (const bool streaming : {false, true}) {
        bulk_copy(to.data() + shift, from.data() + shift, bytes, streaming);
        ASSERT_EQ(std::memcmp(to.data() + shift, from.data() + shift, bytes), 0);
        ASSERT_EQ(to[bytes + shift], std::byte(0x11));
      }
    }
  }
}

}  // namespace
}  // namespace zeno::comm
