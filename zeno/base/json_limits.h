// Bounds on JSON that a user hands over. A parser that builds a tree takes about a hundred bytes for each
// value, copies and prints it by recursion, and where it keeps the order of keys compares each with all
// before it. One pass over the text computes the cost of its tree before the tree is built. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "zeno/base/error.h"

namespace zeno {

struct JsonLimits {
  size_t depth = 64;
  size_t values = 1'000'000;
  size_t nodes = 1'000'000;  // of them that are no numbers, and keys: these take memory of their own
  size_t keys = 1000;        // of one object
};

// "nested deeper than 64 levels": the first limit that a text exceeds; empty: none. Text that is not JSON is
// followed as far as a parser would go.
std::string json_excess(std::string_view text, const JsonLimits& limits = {});

// Error that begins with `where` when a limit is exceeded.
void check_json_limits(std::string_view text, std::string_view where, const JsonLimits& limits = {},
                       ErrorKind kind = ErrorKind::data);

}  // namespace zeno
