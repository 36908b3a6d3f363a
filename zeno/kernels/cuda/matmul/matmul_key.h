// The key that decides which algorithm a matmul runs, and the decision. Plain values, no CUDA in sight.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

#include "zeno/base/dtype.h"

namespace zeno::cuda {

// What A and B are stored as. The values are written to plan files.
enum class OperandType : uint8_t { f32, bf16, f16, e4m3, e5m2 };

OperandType operand_type(DType dtype);
const char* name_of(OperandType type);
constexpr bool is_fp8(OperandType type) { return type >= OperandType::e4m3; }

// What is added to the product: nothing, what C holds, or another matrix.
enum class Addend : uint8_t { none, output, residual };

// C [M, N] = A·B (+ bias) (+ addend), row-major.
struct MatmulKey {
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0, ld_residual = 0;  // row strides
  OperandType a_type = OperandType::f32, b_type = OperandType::f32;
  DType output = DType::f32;
  bool transpose_a = false, transpose_b = false, bias = false;
  Addend addend = Addend::none;
  // log2 of the alignment of each address in bytes; 0 where there is none.
  uint8_t align_a = 0, align_b = 0, align_c = 0, align_bias = 0, align_residual = 0;

  auto operator<=>(const MatmulKey&) const = default;
};

// What a fused bias is stored as: like C, but with fp8 operands always bf16.
constexpr DType bias_type(const MatmulKey& key) { return is_fp8(key.a_type) ? DType::bf16 : key.output; }

struct MatmulKeyHash {
  size_t operator()(const MatmulKey& key) const;
};

// log2 of the alignment of an address, as far as a key tells it: no algorithm needs more than 16 bytes, and
// more would make bits depend on the address of a tensor.
inline constexpr uint8_t kMostAlignment = 4;
uint8_t alignment_of(const void* address);

// "NT 16384x3072x2048 bf16->bf16 +bias"; two operand types where they differ.
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
  int candidates = 0;    // timed
  double burst = 0;      // µs of the best of them, alone with cold caches on a cool GPU
  double sustained = 0;  // µs under the power limit; 0: a product too small for that to be asked
};

}  // namespace zeno::cuda
