// What decides which algorithm a matrix product runs, and what was decided. Plain values, no CUDA in sight.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

#include "zeno/base/dtype.h"

namespace zeno::cuda {

// What is added to the product: nothing, what C holds, or another matrix.
enum class Addend : uint8_t { none, output, residual };

// C [M, N] = A·B (+ bias) (+ addend), row-major.
struct MatmulKey {
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0, ld_residual = 0;  // row strides
  DType operands = DType::f32, output = DType::f32;
  bool transpose_a = false, transpose_b = false, bias = false;
  Addend addend = Addend::none;
  // log2 of the alignment of each address in bytes; 0 where there is none.
  uint8_t align_a = 0, align_b = 0, align_c = 0, align_bias = 0, align_residual = 0;

  auto operator<=>(const MatmulKey&) const = default;
};

struct MatmulKeyHash {
  size_t operator()(const MatmulKey& key) const;
};

// "NT 16384x3072x2048 bf16->bf16 +bias"
std::string describe(const MatmulKey& key);

struct MatmulPlan {
  enum class Origin : uint8_t {
    none,          // the library has no algorithm for this form
    first_choice,  // of the library's heuristic
    loaded,        // from a file, to be checked before its first use
    tuned,
  };
  std::array<uint64_t, 8> algorithm{};  // cublasLtMatmulAlgo_t, opaque but plain data
  uint64_t workspace = 0;
  Origin origin = Origin::none;
  int candidates = 0;       // timed
  double microseconds = 0;  // of the best of them
};

}  // namespace zeno::cuda
