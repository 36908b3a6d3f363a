// Python's pickle format, as far as tensors and containers need it, and no further: nothing is imported and
// nothing is called. A file that uses anything else is refused with its name.
//
// Values form a graph that may share nodes and even contain itself, so a Pickle owns all of them. Pure; no
// thread rule.
#pragma once

#include <deque>
#include <string_view>

#include "zeno/checkpoint/pickle_node.h"

namespace zeno::checkpoint {

struct Pickle {
  std::deque<PickleNode> nodes;  // a deque: nodes keep their address
  const PickleNode* root = nullptr;
};

// Error(data) starting with `where` for anything that is not a well-formed pickle of allowed things.
Pickle parse_pickle(std::string_view bytes, std::string_view where);

}  // namespace zeno::checkpoint
