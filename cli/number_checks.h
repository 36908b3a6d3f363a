// Bounds of numbers on the command line. CLI11's own checks print the largest double with all its digits.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

namespace zeno::cli {

template <typename Holds>
CLI::Validator number_check(Holds holds, std::string_view expected) {
  return CLI::Validator(
      [holds, expected = std::string(expected)](std::string& text) -> std::string {
        double value = 0;
        if (CLI::detail::lexical_cast(text, value) && holds(value)) return "";
        return fmt::format("got {}, expected a number {}", text, expected);
      },
      "");
}

inline CLI::Validator not_negative() {
  return number_check([](double value) { return value >= 0; }, "from 0 on");
}
inline CLI::Validator positive() {
  return number_check([](double value) { return value > 0; }, "above 0");
}

}  // namespace zeno::cli
