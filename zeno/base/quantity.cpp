#include "zeno/base/quantity.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

namespace zeno {
namespace {

struct Split {
  double number = 0;
  std::string unit;  // lower case
};

std::optional<Split> split(std::string_view text) {
  Split parts;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parts.number);
  if (error != std::errc() || !std::isfinite(parts.number) || parts.number <= 0) return std::nullopt;
  text.remove_prefix(size_t(end - text.data()));
  if (text.starts_with(' ')) text.remove_prefix(1);
  for (const char c : text) parts.unit += c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
  return parts;
}

std::optional<double> size_of(double bytes) {
  constexpr double kMost = 0x1p60;  // casts to size_t, sums and products of a few of them hold
  return bytes >= 1 && bytes <= kMost ? std::optional(bytes) : std::nullopt;
}

}  // namespace

std::optional<double> parse_count(std::string_view text) {
  constexpr std::array<std::string_view, 5> kUnits{"", "k", "m", "b", "t"};
  const auto parts = split(text);
  double factor = 1;
  for (const std::string_view unit : kUnits) {
    if (parts && parts->unit == unit) return parts->number * factor;
    factor *= 1000;
  }
  return std::nullopt;
}

std::optional<double> parse_bytes(std::string_view text) {
  constexpr std::array<std::string_view, 5> kUnits{"", "k", "m", "g", "t"};
  const auto parts = split(text);
  double decimal = 1, binary = 1;
  for (const std::string_view unit : kUnits) {
    const std::string prefix(unit);
    if (parts && parts->unit == prefix + "b") return size_of(parts->number * decimal);
    if (parts && !unit.empty() && parts->unit == prefix + "ib") return size_of(parts->number * binary);
    decimal *= 1000;
    binary *= 1024;
  }
  return std::nullopt;
}

std::string count_in_words(double count) {
  if (count >= 1e12) return fmt::format("{:.4g} trillion", count / 1e12);
  if (count >= 1e9) return fmt::format("{:.4g} billion", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.4g} million", count / 1e6);
  return fmt::format("{:.0f}", count);
}

std::string format_count(int64_t count) {
  std::string digits = fmt::format("{}", count);
  const size_t first = digits.starts_with('-') ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

std::string format_percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

}  // namespace zeno
