#include "zeno/data/parquet/json_value.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <string>

#include "zeno/base/float16.h"
#include "zeno/base/utf8.h"
#include "zeno/data/parquet/bits.h"

namespace zeno::data::parquet {
namespace {

constexpr int kExactDigits = 15;         // that a double holds
constexpr size_t kMaxDecimalBytes = 32;  // 76 digits
constexpr int64_t kUnixEpochJulianDay = 2'440'588;

int64_t power_of_ten(int exponent) {
  int64_t power = 1;
  for (int i = 0; i < exponent; ++i) power *= 10;
  return power;
}

// Division towards minus infinity, so that times before 1970 count forward too.
struct Quotient {
  int64_t whole, rest;
};
Quotient floor_divide(int64_t value, int64_t by) {
  Quotient q{value / by, value % by};
  if (q.rest < 0) q = {q.whole - 1, q.rest + by};
  return q;
}

std::string fraction_text(int64_t fraction, int digits) {
  return fraction == 0 ? "" : fmt::format(".{:0{}}", fraction, digits);
}

std::string clock_text(int64_t seconds, int64_t fraction, int digits) {
  return fmt::format("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60) +
         fraction_text(fraction, digits);
}

// Empty: out of the calendar's range.
std::string date_text(int64_t days) {
  constexpr int64_t kRange = 11'000'000;  // about 30,000 years
  if (std::abs(days) > kRange) return "";
  const std::chrono::year_month_day date{std::chrono::sys_days(std::chrono::days(days))};
  return fmt::format("{:04}-{:02}-{:02}", int(date.year()), unsigned(date.month()), unsigned(date.day()));
}

Json date_value(int64_t days) {
  const std::string text = date_text(days);
  return text.empty() ? Json(days) : Json(text);
}

Json time_value(int64_t value, int digits) {
  const auto [seconds, fraction] = floor_divide(value, power_of_ten(digits));
  if (seconds < 0 || seconds >= 86'400) return value;
  return clock_text(seconds, fraction, digits);
}

Json timestamp_value(int64_t value, const LogicalType& type) {
  const auto [seconds, fraction] = floor_divide(value, power_of_ten(type.fraction_digits));
  const auto [days, second] = floor_divide(seconds, 86'400);
  const std::string date = date_text(days);
  if (date.empty()) return value;
  return date + "T" + clock_text(second, fraction, type.fraction_digits) + (type.utc ? "Z" : "");
}

// Nanoseconds of the day, then the Julian day. Writers mean wall clocks and instants alike: no "Z".
Json int96_value(std::string_view bytes) {
  const auto nanoseconds = int64_t(load_little_endian(bytes.substr(0, 8)));
  const int64_t days = int64_t(load_little_endian(bytes.substr(8))) - kUnixEpochJulianDay;
  const std::string date = date_text(days);
  const auto [second, fraction] = floor_divide(nanoseconds, power_of_ten(9));
  if (date.empty() || second < 0 || second >= 86'400) return fmt::format("day {}, {} ns", days, nanoseconds);
  return date + "T" + clock_text(second, fraction, 9);
}

// The digits of a big-endian number in two's complement, at least one more than `scale`.
std::string decimal_digits(std::string_view bytes, int scale, bool negative) {
  std::array<uint8_t, kMaxDecimalBytes> number{};
  int carry = negative;
  for (size_t i = bytes.size(); i-- > 0;) {
    const int byte = (negative ? ~bytes[i] & 0xff : uint8_t(bytes[i])) + carry;
    number[i] = uint8_t(byte);
    carry = byte >> 8;
  }
  std::string digits;
  bool more = true;
  while (more || int(digits.size()) <= scale) {
    int rest = 0;
    more = false;
    for (size_t i = 0; i < bytes.size(); ++i) {
      const int value = rest * 256 + number[i];
      number[i] = uint8_t(value / 10);
      rest = value % 10;
      more = more || number[i] != 0;
    }
    digits += char('0' + rest);
  }
  std::ranges::reverse(digits);
  return digits;
}

Json decimal_value(std::string_view big_endian, const LogicalType& type) {
  const bool negative = !big_endian.empty() && (big_endian[0] & 0x80) != 0;
  std::string text = decimal_digits(big_endian, type.scale, negative);
  if (type.scale > 0) text.insert(text.size() - size_t(type.scale), 1, '.');
  if (negative) text.insert(0, 1, '-');
  if (type.precision > kExactDigits) return text;
  if (type.scale > 0) return std::strtod(text.c_str(), nullptr);
  return int64_t(std::strtoll(text.c_str(), nullptr, 10));
}

std::string big_endian_of(int64_t value) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) bytes += char(value >> shift);
  return bytes;
}

Json uuid_value(std::string_view bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uint8_t(bytes[i]));
  }
  return text;
}

Json text_value(std::string_view bytes) {
  if (is_valid_utf8(bytes)) return std::string(bytes);
  return Json::binary(std::vector<uint8_t>(bytes.begin(), bytes.end()));
}

Json integer_value(int64_t value, const ValueType& type) {
  switch (type.logical.meaning) {
    case Meaning::unsigned_integer:
      return type.physical == PhysicalType::int32 ? uint64_t(uint32_t(value)) : uint64_t(value);
    case Meaning::date:
      return date_value(value);
    case Meaning::time:
      return time_value(value, type.logical.fraction_digits);
    case Meaning::timestamp:
      return timestamp_value(value, type.logical);
    case Meaning::decimal:
      return decimal_value(big_endian_of(value), type.logical);
    default:
      return type.physical == PhysicalType::boolean ? Json(value != 0) : Json(value);
  }
}

Json bytes_value(std::string_view bytes, const ValueType& type) {
  if (type.physical == PhysicalType::int96) return int96_value(bytes);
  switch (type.logical.meaning) {
    case Meaning::decimal:
      return bytes.size() <= kMaxDecimalBytes ? decimal_value(bytes, type.logical) : text_value(bytes);
    case Meaning::uuid:
      return bytes.size() == 16 ? uuid_value(bytes) : text_value(bytes);
    case Meaning::float16:
      if (bytes.size() != 2) return text_value(bytes);
      return double(float(std::bit_cast<F16>(uint16_t(load_little_endian(bytes)))));
    default:
      return text_value(bytes);
  }
}

}  // namespace

Json json_value(const Value& value, const ValueType& type) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return integer_value(*integer, type);
  if (const auto* real = std::get_if<double>(&value)) return *real;
  return bytes_value(std::get<std::string_view>(value), type);
}

}  // namespace zeno::data::parquet
