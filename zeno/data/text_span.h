// A range of a text.
#pragma once

#include <cstddef>

namespace zeno::data {

// Bytes [begin, end).
struct TextSpan {
  size_t begin = 0, end = 0;
  bool operator==(const TextSpan&) const = default;
};

}  // namespace zeno::data
