#include "zeno/data/jinja/format.h"

#include <fmt/core.h>
#include <time.h>

#include <cmath>

#include "zeno/base/utf8.h"
#include "zeno/data/jinja/attributes.h"
#include "zeno/data/jinja/markup.h"
#include "zeno/data/jinja/operators.h"
#include "zeno/data/jinja/python_text.h"
#include "zeno/data/jinja/unicode.h"

namespace zeno::data::jinja {
namespace {

constexpr int kMaxWidth = 10'000;

// How one value is to be written; the two notations of Python agree on this much.
struct Style {
  char type = 0;  // s r d x X o b e E f F g G c %
  char32_t fill = U' ';
  char align = 0;  // < > ^ =
  char sign = '-';
  bool alternate = false, grouped = false;
  int width = 0, precision = -1;
};

[[noreturn]] void bad(std::string what) { throw RenderError(fmt::format("format: {}", what)); }

TracedText pad(const Style& style, char default_align, const TracedText& body, std::string_view sign = "") {
  const size_t size = point_count(sign) + point_count(body.str());
  const size_t missing = size_t(style.width) > size ? size_t(style.width) - size : 0;
  const auto fill = [&](size_t count) {
    std::string out;
    while (count--) append_utf8(out, style.fill);
    return out;
  };
  const char align = style.align ? style.align : default_align;
  const size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  const Origin origin = body.origin();
  TracedText out;
  if (align != '=') out.append(fill(left));
  out.append(sign, origin);
  if (align == '=') out.append(fill(left));
  out.append(body);
  out.append(fill(missing - left));
  return out;
}

std::string sign_of(const Style& style, bool negative) {
  if (negative) return "-";
  return style.sign == '-' ? std::string() : std::string(1, style.sign);
}

std::string group(std::string digits) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (size_t i = whole; i > 3; i -= 3) digits.insert(i - 3, 1, ',');
  return digits;
}

TracedText integer_text(const Style& style, int64_t value, Origin origin) {
  const uint64_t size = value < 0 ? uint64_t(0) - uint64_t(value) : uint64_t(value);
  std::string digits;
  switch (style.type) {
    case 'x':
      digits = fmt::format("{:x}", size);
      break;
    case 'X':
      digits = fmt::format("{:X}", size);
      break;
    case 'o':
      digits = fmt::format("{:o}", size);
      break;
    case 'b':
      digits = fmt::format("{:b}", size);
      break;
    default:
      digits = fmt::format("{}", size);
  }
  if (style.grouped) digits = group(digits);
  std::string sign = sign_of(style, value < 0);
  if (style.alternate && style.type != 'd' && style.type != 0) sign += fmt::format("0{}", style.type);
  return pad(style, '>', TracedText(digits, origin), sign);
}

TracedText real_number_text(const Style& style, double value, Origin origin) {
  const double size = std::fabs(value);
  const int precision = style.precision < 0 ? 6 : style.precision;
  std::string digits;
  switch (style.type) {
    case 'e':
      digits = fmt::format("{:.{}e}", size, precision);
      break;
    case 'E':
      digits = fmt::format("{:.{}E}", size, precision);
      break;
    case 'g':
    case 'G':
      digits = fmt::format("{:.{}g}", size, precision);
      break;
    case '%':
      digits = fmt::format("{:.{}f}%", size * 100, precision);
      break;
    case 0:
      digits = style.precision < 0 ? real_text(size) : fmt::format("{:.{}g}", size, precision);
      break;
    default:
      digits = fmt::format("{:.{}f}", size, precision);
  }
  if (style.grouped) digits = group(digits);
  return pad(style, '>', TracedText(digits, origin),
             sign_of(style, std::signbit(value) && !std::isnan(value)));
}

TracedText styled_text(const Style& style, const TracedText& text, char align) {
  if (style.precision < 0) return pad(style, align, text);
  const std::string kept = from_points(points(text.str()).substr(0, size_t(style.precision)));
  return pad(style, align, text.part(0, kept.size()));
}

bool wants_real(char type) {
  return type && std::string_view("eEfFgG%").find(type) != std::string_view::npos;
}

int64_t to_integer(const Value& value, char type) {
  if (value.is_integral()) return value.as_integer();
  if (type == 'd' && value.is(Kind::real) && std::fabs(value.as_real()) < 9e18)
    return int64_t(value.as_real());
  bad(fmt::format("%{} needs a number, got a {}", type, value.type_name()));
}

TracedText formatted(Runtime& runtime, const Style& style, const Value& value) {
  if (style.type == 's') return styled_text(style, str_of(runtime, value), '<');
  if (wants_real(style.type) || (style.type == 0 && value.is(Kind::real))) {
    require_defined(value);
    if (!value.is_number()) bad(fmt::format("{} needs a number, got a {}", style.type, value.type_name()));
    return real_number_text(style, value.as_real(), value.origin());
  }
  if (style.type == 0 && !value.is(Kind::integer)) return styled_text(style, str_of(runtime, value), '<');
  require_defined(value);
  if (style.precision >= 0 && style.type == 0) bad("precision is not allowed for integers");
  return integer_text(style, to_integer(value, style.type), value.origin());
}

// Reads digits; the widths of a stranger's template stay small.
int number(std::string_view text, size_t& at) {
  int out = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    out = out * 10 + (text[at] - '0');
    if (out > kMaxWidth) bad(fmt::format("width or precision over {}", kMaxWidth));
  }
  return out;
}

// The values of a % operation, taken one after the other or by name.
class PercentValues {
 public:
  explicit PercentValues(const Value& values) : values_(values) {}
  const Value& next() {
    if (!values_.is(Kind::tuple)) {
      if (used_++) bad("not enough values");
      return values_;
    }
    if (used_ >= values_.items().size()) bad("not enough values");
    return values_.items()[used_++];
  }
  const Value& named(const std::string& name) {
    if (!values_.is(Kind::dict)) bad("%(name) needs a dict");
    const Value* held = find(values_.pairs(), name);
    if (!held) bad(fmt::format("no value '{}'", name));
    used_ = 1;
    return *held;
  }
  void finish() const {
    const size_t given = values_.is(Kind::tuple) ? values_.items().size() : values_.is(Kind::dict) ? 0 : 1;
    if (used_ < given) bad("more values than placeholders");
  }

 private:
  const Value& values_;
  size_t used_ = 0;
};

TracedText percent_field(Runtime& runtime, std::string_view format, size_t& at, PercentValues& values,
                         bool markup) {
  Style style;
  std::optional<std::string> name;
  if (at < format.size() && format[at] == '(') {
    const size_t close = format.find(')', at);
    if (close == format.npos) bad("unclosed %(");
    name = std::string(format.substr(at + 1, close - at - 1));
    at = close + 1;
  }
  for (; at < format.size() && std::string_view("#0- +").find(format[at]) != std::string_view::npos; ++at) {
    if (format[at] == '#') style.alternate = true;
    if (format[at] == '-') style.align = '<';
    if (format[at] == '0' && style.align != '<') style.fill = U'0', style.align = '=';
    if (format[at] == '+' || (format[at] == ' ' && style.sign == '-')) style.sign = format[at];
  }
  style.width = number(format, at);
  if (at < format.size() && format[at] == '.') style.precision = number(format, ++at);
  if (at == format.size()) bad("incomplete %");
  style.type = format[at++];
  if (style.type == '%') return TracedText("%");
  if (style.align == '<') style.fill = U' ';
  const Value& value = name ? values.named(*name) : values.next();
  if (style.type == 's' || style.type == 'r') {
    style.fill = U' ';
    if (style.align == '=') style.align = 0;
    TracedText text = style.type == 's' ? str_of(runtime, value) : repr_of(runtime, value);
    if (markup && !value.is_markup()) text = escape_html(text);
    return styled_text(style, text, '>');
  }
  if (style.type == 'i' || style.type == 'u') style.type = 'd';
  if (std::string_view("dxXoeEfFgG").find(style.type) == std::string_view::npos) {
    bad(fmt::format("unknown %{}", style.type));
  }
  if (!wants_real(style.type)) style.precision = -1;
  return formatted(runtime, style, value);
}

bool is_align(char32_t c) { return c == '<' || c == '>' || c == '^' || c == '='; }

Style brace_style(std::string_view spec) {
  Style style;
  size_t at = 0, after = 0;
  const char32_t first = spec.empty() ? U' ' : next_point(spec, after);
  if (!spec.empty() && after < spec.size() && is_align(char32_t(spec[after]))) {
    style.fill = first;
    style.align = spec[after];
    at = after + 1;
  } else if (!spec.empty() && is_align(char32_t(spec[0]))) {
    style.align = spec[at++];
  }
  if (at < spec.size() && (spec[at] == '+' || spec[at] == '-' || spec[at] == ' ')) style.sign = spec[at++];
  if (at < spec.size() && spec[at] == '#') style.alternate = true, ++at;
  if (at < spec.size() && spec[at] == '0') {
    if (!style.align) style.fill = U'0', style.align = '=';
    ++at;
  }
  style.width = number(spec, at);
  if (at < spec.size() && spec[at] == ',') style.grouped = true, ++at;
  if (at < spec.size() && spec[at] == '.') style.precision = number(spec, ++at);
  if (at < spec.size()) style.type = spec[at++];
  const bool known =
      !style.type || std::string_view("sdxXobeEfFgG%").find(style.type) != std::string_view::npos;
  if (at != spec.size() || !known) bad(fmt::format("bad specification '{}'", spec));
  return style;
}

// `0`, `name`, `a.b[c]`; an empty first part takes the next positional argument.
Value brace_value(Runtime& runtime, std::string_view field, const Arguments& arguments, size_t& next) {
  const size_t first_end = std::min(field.find_first_of(".["), field.size());
  const std::string first(field.substr(0, first_end));
  Value value;
  if (first.empty() || first.find_first_not_of("0123456789") == first.npos) {
    size_t at = 0;
    const size_t index = first.empty() ? next++ : size_t(number(first, at));
    if (index >= arguments.positional.size()) bad(fmt::format("no argument {}", index));
    value = arguments.positional[index];
  } else {
    bool found = false;
    for (const auto& [name, held] : arguments.named) {
      if (name == first) value = held, found = true;
    }
    if (!found) bad(fmt::format("no argument '{}'", first));
  }
  for (size_t at = first_end; at < field.size();) {
    const bool bracket = field[at] == '[';
    const size_t end =
        bracket ? field.find(']', at) : std::min(field.find_first_of(".[", at + 1), field.size());
    if (end == field.npos || end == at + 1) bad("bad field");
    const std::string name(field.substr(at + 1, end - at - 1));
    const bool index = bracket && name.find_first_not_of("0123456789") == name.npos && name.size() < 10;
    value = index     ? item_of(runtime, value, Value::integer(std::stoll(name)))
            : bracket ? subscript(runtime, value, Value::text(name))
                      : attribute(runtime, value, name);
    at = bracket ? end + 1 : end;
  }
  return value;
}

TracedText brace_field(Runtime& runtime, std::string_view field, const Arguments& arguments, size_t& next) {
  if (field.find('{') != field.npos) bad("nested fields are not supported");
  const size_t colon = std::min(field.find(':'), field.size());
  std::string_view name = field.substr(0, colon);
  const std::string_view spec = field.substr(std::min(colon + 1, field.size()));
  char conversion = 0;
  if (const size_t mark = name.find('!'); mark != name.npos) {
    if (name.size() != mark + 2) bad("bad conversion");
    conversion = name[mark + 1];
    name = name.substr(0, mark);
  }
  Value value = brace_value(runtime, name, arguments, next);
  if (conversion == 'r') value = Value::text(repr_of(runtime, value));
  if (conversion == 's') value = Value::text(str_of(runtime, value));
  const Style style = brace_style(spec);
  if (value.is(Kind::string) && style.type && style.type != 's')
    bad(fmt::format("'{}' for a text", style.type));
  return formatted(runtime, style, value);
}

}  // namespace

Value percent_format(Runtime& runtime, const Value& format, const Value& values) {
  const std::string_view text = format.as_text();
  PercentValues source(values);
  TracedText out;
  for (size_t at = 0; at < text.size();) {
    const size_t next = std::min(text.find('%', at), text.size());
    out.append(format.traced().part(at, next - at));
    if (next == text.size()) break;
    at = next + 1;
    out.append(percent_field(runtime, text, at, source, format.is_markup()));
    runtime.budget.bytes(out.size() / 8 + 1);
  }
  source.finish();
  runtime.budget.bytes(out.size());
  return Value::text(std::move(out), format.is_markup());
}

Value brace_format(Runtime& runtime, const TracedText& whole, const Arguments& arguments) {
  const std::string& format = whole.str();
  TracedText out;
  size_t next = 0;
  for (size_t at = 0; at < format.size(); ++at) {
    const char c = format[at];
    if ((c == '{' || c == '}') && at + 1 < format.size() && format[at + 1] == c) {
      out.append(whole.part(at, 1));
      ++at;
    } else if (c == '}') {
      bad("single }");
    } else if (c == '{') {
      const size_t close = format.find('}', at);
      if (close == format.npos) bad("single {");
      const TracedText field =
          brace_field(runtime, std::string_view(format).substr(at + 1, close - at - 1), arguments, next);
      runtime.budget.bytes(field.size());
      out.append(field);
      at = close;
    } else {
      const size_t end = std::min(format.find_first_of("{}", at), format.size());
      out.append(whole.part(at, end - at));
      at = end - 1;
    }
  }
  runtime.budget.bytes(out.size());
  return Value::text(std::move(out));
}

std::string time_text(const std::string& format, int64_t seconds) {
  if (format.size() > 1000) bad("a time format of over 1000 bytes");
  const time_t when = seconds;
  struct tm parts {};
  if (!gmtime_r(&when, &parts)) bad("time out of range");
  static const locale_t c_names = newlocale(LC_ALL_MASK, "C", locale_t(0));
  std::string out(4096, '\0');
  // One more character tells an empty result from a full buffer.
  out.resize(strftime_l(out.data(), out.size(), fmt::format("{}x", format).c_str(), &parts, c_names));
  if (out.empty()) bad("time format too long");
  out.pop_back();
  return out;
}

}  // namespace zeno::data::jinja
