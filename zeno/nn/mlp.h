// The second half of a block as a separate layer: y = x + down(activation(up(norm(x)))). Same rules as Block:
// owns no memory, async on the given stream, immutable.
#pragma once

#include <memory>

#include "zeno/nn/layer.h"

namespace zeno::nn {

struct BlockOptions;

// Reads the feed-forward part of the options. Backward overwrites `saved`. Forward with an empty y skips the
// last matmul: all that backward needs exists before it.
std::unique_ptr<Layer> make_mlp(const BlockOptions& options);

}  // namespace zeno::nn
