// Async copies and fills between memories reachable from a stream's device.
#pragma once

#include <cstddef>

#include "zeno/device/stream.h"

namespace zeno {

// The ranges must not overlap.
void copy_async(StreamRef stream, std::byte* to, const std::byte* from, size_t bytes);
void fill_zero_async(StreamRef stream, std::byte* to, size_t bytes);

}  // namespace zeno
