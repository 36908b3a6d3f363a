#include "zeno/kernels/cuda/matmul/matmul_key.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "zeno/base/error.h"

namespace zeno::cuda {

OperandType operand_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return OperandType::f32;
    case DType::bf16:
      return OperandType::bf16;
    case DType::f16:
      return OperandType::f16;
    default:
      fail(ErrorKind::internal, "[matmul] got {}, expected a floating type", name_of(dtype));
  }
}

const char* name_of(OperandType type) {
  switch (type) {
    case OperandType::f32:
      return "fp32";
    case OperandType::bf16:
      return "bf16";
    case OperandType::f16:
      return "fp16";
    case OperandType::e4m3:
      return "e4m3";
    case OperandType::e5m2:
      return "e5m2";
  }
  return "?";
}

uint8_t alignment_of(const void* address) {
  return uint8_t(std::min<int>(std::countr_zero(std::bit_cast<uintptr_t>(address)), kMostAlignment));
}

size_t MatmulKeyHash::operator()(const MatmulKey& key) const {
  uint64_t hash = 0;
  const auto mix = [&](uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  };
  for (int64_t size : {key.m, key.n, key.k, key.lda, key.ldb, key.ldc, key.ld_residual}) mix(uint64_t(size));
  mix(uint64_t(key.a_type) | uint64_t(key.output) << 8 | uint64_t(key.transpose_a) << 16 |
      uint64_t(key.transpose_b) << 17 | uint64_t(key.bias) << 18 | uint64_t(key.addend) << 24 |
      uint64_t(key.b_type) << 32);
  mix(uint64_t(key.align_a) | uint64_t(key.align_b) << 8 | uint64_t(key.align_c) << 16 |
      uint64_t(key.align_bias) << 24 | uint64_t(key.align_residual) << 32);
  return size_t(hash);
}

std::string describe(const MatmulKey& key) {
  const char* const addend = key.addend == Addend::output     ? " +C"
                             : key.addend == Addend::residual ? " +residual"
                                                              : "";
  std::string operands = name_of(key.a_type);
  if (key.b_type != key.a_type) operands = fmt::format("{}*{}", operands, name_of(key.b_type));
  return fmt::format("{}{} {}x{}x{} {}->{}{}{}", key.transpose_a ? 'T' : 'N', key.transpose_b ? 'T' : 'N',
                     key.m, key.n, key.k, operands, name_of(key.output), key.bias ? " +bias" : "", addend);
}

}  // namespace zeno::cuda
