// Fills device memory with values that look like data. For timing: zeros run faster than real numbers, and a
// model whose weights are too large makes zeros (softmax of one token, its gradient) or infinities of them.
#pragma once

#include <cstddef>

#include "zeno/base/dtype.h"
#include "zeno/device/stream.h"

namespace zeno::cuda {

// Async. `bytes` is a multiple of 4. Every half word is a bf16 or, if told so, an fp16 of size 2^-7 to 2^-3,
// about as the weights of a new model; read as fp32, words are such bf16 values with more digits.
void fill_random(StreamRef stream, std::byte* data, size_t bytes, DType dtype = DType::bf16);

}  // namespace zeno::cuda
