// Integer arithmetic used everywhere for sizes and offsets.
#pragma once

#include <concepts>
#include <cstdint>

namespace zeno {

template <std::integral T>
constexpr T div_ceil(T a, T b) {
  return (a + b - 1) / b;
}

template <std::integral T>
constexpr T round_up(T a, T multiple) {
  return div_ceil(a, multiple) * multiple;
}

}  // namespace zeno
