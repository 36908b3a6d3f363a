// The first half of a block as a separate layer: y = x + out(attention(rope(qkv(norm(x))))). Same rules as
// Block: owns no memory, async on the given stream, immutable.
#pragma once

#include <memory>

#include "zeno/nn/layer.h"

namespace zeno::nn {

struct BlockOptions;

// Reads the attention part of the options. Backward overwrites `saved`.
std::unique_ptr<Layer> make_attention(const BlockOptions& options);

}  // namespace zeno::nn
