#include "zeno/kernels/cuda/matmul_key.h"

#include <fmt/core.h>

namespace zeno::cuda {

size_t MatmulKeyHash::operator()(const MatmulKey& key) const {
  uint64_t hash = 0;
  const auto mix = [&](uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  };
  for (int64_t size : {key.m, key.n, key.k, key.lda, key.ldb, key.ldc, key.ld_residual}) mix(uint64_t(size));
  mix(uint64_t(key.operands) | uint64_t(key.output) << 8 | uint64_t(key.transpose_a) << 16 |
      uint64_t(key.transpose_b) << 17 | uint64_t(key.bias) << 18 | uint64_t(key.addend) << 24);
  mix(uint64_t(key.align_a) | uint64_t(key.align_b) << 8 | uint64_t(key.align_c) << 16 |
      uint64_t(key.align_bias) << 24 | uint64_t(key.align_residual) << 32);
  return size_t(hash);
}

std::string describe(const MatmulKey& key) {
  const char* const addend = key.addend == Addend::output     ? " +C"
                             : key.addend == Addend::residual ? " +residual"
                                                              : "";
  return fmt::format("{}{} {}x{}x{} {}->{}{}{}", key.transpose_a ? 'T' : 'N', key.transpose_b ? 'T' : 'N',
                     key.m, key.n, key.k, name_of(key.operands), name_of(key.output),
                     key.bias ? " +bias" : "", addend);
}

}  // namespace zeno::cuda
