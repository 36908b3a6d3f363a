// Bounds that keep a hostile file from becoming a huge allocation.
#pragma once

#include <cstdint>

namespace zeno::data::tokenizer {

constexpr int64_t kMaxId = (int64_t(1) << 22) - 1;  // more ids than any tokenizer has
constexpr int kMaxDepth = 64;                       // of objects inside objects

}  // namespace zeno::data::tokenizer
