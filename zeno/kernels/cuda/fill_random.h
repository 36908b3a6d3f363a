// Fills device memory with values that look like data, whatever float type it is read as. For timing: zeros
// run faster than real numbers.
#pragma once

#include <cstddef>

#include "zeno/device/stream.h"

namespace zeno::cuda {

// Async. `bytes` is a multiple of 4; every half word is a bf16 of size 0.5 to 1, and so is every word as
// fp32.
void fill_random(StreamRef stream, std::byte* data, size_t bytes);

}  // namespace zeno::cuda
