// One callable out of several, for std::visit: Overload{[](const A&) {…}, [](const B&) {…}}.
#pragma once

namespace zeno {

template <class... Cases>
struct Overload : Cases... {
  using Cases::operator()...;
};

}  // namespace zeno
