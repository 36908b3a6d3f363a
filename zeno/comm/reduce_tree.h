// The canonical sum over ranks and the bulk copy, the two loops that all collectives are made of. Vectorised,
// with the instruction set chosen at run time; the bits of a sum never depend on that choice. Both run on the
// calling thread.
//
// Streaming bypasses the caches and alternates between pages. It is for outputs too large to be in a cache
// when they are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "zeno/base/dtype.h"

namespace zeno::comm {

struct TreeSum {
  std::byte* out = nullptr;
  DType out_dtype = DType::f32;
  DType dtype = DType::f32;  // of the inputs
  bool accumulate = false;   // out += sum, added in fp32 and rounded once
  bool streaming = false;
};

// out[i] = sum over r of inputs[r][i] for i < count, in fp32, in a balanced binary tree: [0, n) splits at the
// largest power of two below n. The result is rounded once. `out` may be one of the inputs when the dtypes
// are equal.
void tree_sum(const TreeSum& sum, std::span<const std::byte* const> inputs, int64_t count);

// The ranges must not overlap.
void bulk_copy(std::byte* to, const std::byte* from, size_t bytes, bool streaming);

}  // namespace zeno::comm
