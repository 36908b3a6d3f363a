// The filters of filters.h over texts and numbers.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "zeno/data/jinja/filters/filters.h"
#include "zeno/data/jinja/format.h"
#include "zeno/data/jinja/markup.h"
#include "zeno/data/jinja/operators.h"
#include "zeno/data/jinja/python_text.h"
#include "zeno/data/jinja/unicode.h"

namespace zeno::data::jinja {
namespace {

template <std::string (*change)(std::string_view)>
Value changed(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("filter", {}, 0, arguments);
  return Value::text(str_of(runtime, subject).changed(change), subject.is_markup());
}

Value safe(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("safe", {}, 0, arguments);
  return Value::text(str_of(runtime, subject), true);
}

Value escape(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("escape", {}, 0, arguments);
  return Value::text(escaped(runtime, subject), true);
}

Value force_escape(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("forceescape", {}, 0, arguments);
  return Value::text(escape_html(str_of(runtime, subject)), true);
}

// Unlike str.title, words begin only after white space and opening marks.
std::string title_words(std::string_view text) {
  const auto separates = [](char32_t point) {
    return point == '-' || point == '(' || point == '{' || point == '[' || point == '<' || is_space(point);
  };
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const bool mark = [&] {
      size_t peek = at;
      return separates(next_point(text, peek));
    }();
    while (at < text.size()) {
      size_t after = at;
      if (separates(next_point(text, after)) != mark) break;
      at = after;
    }
    const std::string_view run = text.substr(begin, at - begin);
    size_t first = 0;
    next_point(run, first);
    if (mark) {
      out += run;
    } else {
      out.append(to_upper(run.substr(0, first))).append(to_lower(run.substr(first)));
    }
  }
  return out;
}

Value title(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("title", {}, 0, arguments);
  return Value::text(str_of(runtime, subject).changed(title_words));
}

std::string unchanged(std::string_view text) { return std::string(text); }

Value trim(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("trim", {"chars"}, 0, arguments);
  const TracedText text = str_of(runtime, subject);
  const std::string_view kept = bound.set(0)
                                    ? strip_right(strip_left(text.str(), bound.text(0)), bound.text(0))
                                    : strip_right(strip_left(text.str()));
  return Value::text(text.part(kept), subject.is_markup());
}

Value replace(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("replace", {"old", "new", "count"}, 2, arguments);
  const int64_t count = bound.set(2) ? bound.integer(2, -1) : -1;
  const TracedText old = str_of(runtime, bound[0]), fresh = str_of(runtime, bound[1]);
  return Value::text(replaced(runtime, str_of(runtime, subject), old.str(), fresh, count));
}

const TracedText& text_of(const Value& subject, std::string_view filter) {
  require_defined(subject);
  if (!subject.is(Kind::string)) {
    throw RenderError(fmt::format("{}: got a {}, expected a text", filter, subject.type_name()));
  }
  return subject.traced();
}

Value indent(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("indent", {"width", "first", "blank"}, 0, arguments);
  const bool first = bound.truth(1, false), blank = bound.truth(2, false);
  std::string margin;
  if (bound.has(0) && bound[0].is(Kind::string)) {
    margin = bound[0].as_text();
  } else {
    const int64_t width = std::max<int64_t>(0, bound.integer(0, 4));
    runtime.budget.bytes(uint64_t(width));
    margin.assign(size_t(width), ' ');
  }
  TracedText text = text_of(subject, "indent");
  text.append("\n");
  const std::vector<std::string_view> lines = split_lines(text.str());
  TracedText out;
  if (first) out.append(margin);
  for (size_t i = 0; i < lines.size(); ++i) {
    runtime.budget.bytes(lines[i].size() + margin.size() + 1);
    if (i) out.append("\n");
    if (i && (blank || !lines[i].empty())) out.append(margin);
    out.append(text.part(lines[i]));
  }
  return Value::text(std::move(out), subject.is_markup());
}

Value word_count(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("wordcount", {}, 0, arguments);
  int64_t words = 0;
  bool inside = false;
  for (const char32_t point : points(str_of(runtime, subject).str())) {
    const bool word = is_alpha(point) || is_digit(point) || point == '_';
    words += word && !inside;
    inside = word;
  }
  return Value::integer(words);
}

Value center(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("center", {"width"}, 0, arguments);
  const TracedText text = str_of(runtime, subject);
  const int64_t width = bound.integer(0, 80);
  const int64_t missing = std::max<int64_t>(0, width - int64_t(point_count(text.str())));
  runtime.budget.bytes(uint64_t(missing));
  const int64_t left = missing / 2 + (missing & width & 1);
  TracedText out(std::string(size_t(left), ' '));
  out.append(text);
  out.append(std::string(size_t(missing - left), ' '));
  return Value::text(std::move(out), subject.is_markup());
}

Value truncate(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("truncate", {"length", "killwords", "end", "leeway"}, 0, arguments);
  const TracedText& whole = text_of(subject, "truncate");
  const std::u32string text = points(whole.str());
  const int64_t most = bound.integer(0, 255), leeway = bound.set(3) ? bound.integer(3, 5) : 5;
  const Value mark = bound.get(2, Value::text("..."));
  const std::u32string end = points(text_of(mark, "truncate").str());
  if (most < int64_t(end.size()) || leeway < 0) throw RenderError("truncate: the length is too small");
  if (leeway > INT64_MAX - most || int64_t(text.size()) <= most + leeway) return subject;
  std::u32string kept = text.substr(0, size_t(most) - end.size());
  if (!bound.truth(1, false)) {
    const size_t space = kept.rfind(U' ');
    if (space != kept.npos) kept.resize(space);
  }
  const TracedText begin = whole.part(0, from_points(kept).size());
  return apply(runtime, Operator::add, Value::text(begin, subject.is_markup()), mark);
}

// int() and float() of a text: nothing but a number and white space around it.
std::optional<double> read_real(std::string_view text) {
  std::string digits;
  for (const char c : strip_right(strip_left(text))) {
    if (c != '_') digits += c;
  }
  const std::string lower = to_lower(digits);
  const bool plain = !lower.empty() && lower.find_first_not_of("0123456789.e+-") == lower.npos;
  const std::string_view name =
      std::string_view(lower).substr(lower.starts_with('-') || lower.starts_with('+'));
  if (!plain && name != "inf" && name != "infinity" && name != "nan") return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(digits.c_str(), &end);
  if (end != digits.c_str() + digits.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> read_integer(std::string_view text, int base) {
  std::string digits;
  for (const char c : strip_right(strip_left(text))) {
    if (c != '_') digits += c;
  }
  const size_t sign = digits.starts_with('-') || digits.starts_with('+');
  const std::string prefix = to_lower(std::string_view(digits).substr(sign, 2));
  const int named = prefix == "0x" ? 16 : prefix == "0o" ? 8 : prefix == "0b" ? 2 : 0;
  if (named && (base == named || base == 0)) {
    digits.erase(sign, 2);
    base = named;
  }
  if (base == 0) base = 10;
  if (base < 2 || base > 36 || digits.size() == sign ||
      !std::isalnum(static_cast<unsigned char>(digits[sign])))
    return std::nullopt;
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(digits.c_str(), &end, base);
  if (end != digits.c_str() + digits.size()) return std::nullopt;
  if (errno == ERANGE) throw RenderError("integer beyond 64 bits");
  return value;
}

std::optional<int64_t> truncated(double value) {
  if (std::isnan(value) || std::isinf(value)) return std::nullopt;
  if (std::fabs(value) >= 9223372036854775808.0) throw RenderError("integer beyond 64 bits");
  return int64_t(value);
}

Value to_integer(Runtime&, const Value& subject, const Arguments& arguments) {
  const Bound bound("int", {"default", "base"}, 0, arguments);
  require_defined(subject);
  std::optional<int64_t> number;
  if (subject.is_integral()) number = subject.as_integer();
  if (subject.is(Kind::real)) number = truncated(subject.as_real());
  if (subject.is(Kind::string)) {
    number = read_integer(subject.as_text(), int(std::clamp<int64_t>(bound.integer(1, 10), -1, 99)));
    if (!number) {
      if (const std::optional<double> real = read_real(subject.as_text())) number = truncated(*real);
    }
  }
  return number ? Value::integer(*number).from(subject.origin()) : bound.get(0, Value::integer(0));
}

Value to_real(Runtime&, const Value& subject, const Arguments& arguments) {
  const Bound bound("float", {"default"}, 0, arguments);
  require_defined(subject);
  std::optional<double> number;
  if (subject.is_number()) number = subject.as_real();
  if (subject.is(Kind::string)) number = read_real(subject.as_text());
  return number ? Value::real(*number).from(subject.origin()) : bound.get(0, Value::real(0));
}

Value absolute(Runtime&, const Value& subject, const Arguments& arguments) {
  const Bound bound("abs", {}, 0, arguments);
  require_defined(subject);
  if (!subject.is_number())
    throw RenderError(fmt::format("abs: got a {}, expected a number", subject.type_name()));
  if (subject.is(Kind::real)) return Value::real(std::fabs(subject.as_real()));
  return subject.as_integer() < 0 ? negate(subject) : plus(subject);
}

// Half to even in the decimal digits of the exact value, as Python rounds.
Value rounded(double value, int64_t precision) {
  if (!std::isfinite(value)) return Value::real(value);
  if (precision > 300) return Value::real(value);
  if (precision >= 0)
    return Value::real(std::strtod(fmt::format("{:.{}f}", value, precision).c_str(), nullptr));
  const double scale = std::pow(10.0, double(-std::max<int64_t>(precision, -400)));
  return Value::real(std::isinf(scale) ? std::copysign(0.0, value) : std::nearbyint(value / scale) * scale);
}

Value rounded(int64_t value, int64_t precision) {
  if (precision >= 0) return Value::integer(value);
  if (precision < -18) return Value::integer(0);
  int64_t scale = 1;
  for (int64_t i = 0; i > precision; --i) scale *= 10;
  const int64_t rest = ((value % scale) + scale) % scale, low = value - rest;
  const int64_t twice = rest > scale / 2 ? 1 : rest < scale / 2 ? -1 : 0;
  const bool up = twice > 0 || (twice == 0 && (low / scale) % 2 != 0);
  int64_t out = low;
  if (up && __builtin_add_overflow(low, scale, &out)) throw RenderError("integer beyond 64 bits");
  return Value::integer(out);
}

Value round_filter(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("round", {"precision", "method"}, 0, arguments);
  require_defined(subject);
  const std::string method = bound.has(1) ? bound.text(1) : "common";
  const int64_t precision = bound.integer(0, 0);
  if (method != "common" && method != "ceil" && method != "floor") {
    throw RenderError("round: the method must be common, ceil or floor");
  }
  if (!subject.is_number())
    throw RenderError(fmt::format("round: got a {}, expected a number", subject.type_name()));
  if (method == "common") {
    return subject.is(Kind::real) ? rounded(subject.as_real(), precision)
                                  : rounded(subject.as_integer(), precision);
  }
  const Value scale = apply(runtime, Operator::power, Value::integer(10), Value::integer(precision));
  const double scaled = apply(runtime, Operator::multiply, subject, scale).as_real();
  const std::optional<int64_t> whole = truncated(method == "ceil" ? std::ceil(scaled) : std::floor(scaled));
  if (!whole) throw RenderError("round: not a finite number");
  return apply(runtime, Operator::divide, Value::integer(*whole), scale);
}

Value format(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    throw RenderError("format: positional and named arguments at the same time");
  }
  Pairs named;
  for (const auto& [name, value] : arguments.named) assign(named, Value::text(name), value);
  const Value values = named.empty() ? Value::tuple(arguments.positional) : Value::dict(std::move(named));
  return percent_format(runtime, Value::text(str_of(runtime, subject), subject.is_markup()), values);
}

std::string percent_encoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) ||
                       std::string_view("_.-~/").find(c) != std::string_view::npos;
    if (plain) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

Value url_encode(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("urlencode", {}, 0, arguments);
  return Value::text(str_of(runtime, subject).changed(percent_encoded));
}

}  // namespace

std::vector<NamedFilter> text_filters() {
  return {{"upper", changed<to_upper>},
          {"lower", changed<to_lower>},
          {"title", title},
          {"capitalize", changed<to_capitalized>},
          {"string", changed<unchanged>},
          {"safe", safe},
          {"escape", escape},
          {"e", escape},
          {"forceescape", force_escape},
          {"trim", trim},
          {"replace", replace},
          {"indent", indent},
          {"wordcount", word_count},
          {"center", center},
          {"truncate", truncate},
          {"int", to_integer},
          {"float", to_real},
          {"abs", absolute},
          {"round", round_filter},
          {"format", format},
          {"urlencode", url_encode}};
}

}  // namespace zeno::data::jinja
