#include "zeno/data/jinja/python_text.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <utility>

#include "zeno/base/utf8.h"
#include "zeno/data/jinja/unicode.h"

namespace zeno::data::jinja {
namespace {

// Appends to one text, counting as it grows.
class Writer {
 public:
  explicit Writer(Runtime& runtime) : runtime_(runtime) {}

  void repr(const Value& value) {
    const Budget::Level level(runtime_.budget);
    runtime_.budget.step();
    const Origin outer = std::exchange(origin_, value.origin());
    write(value);
    origin_ = outer;
  }

  TracedText take() { return std::move(out_); }

 private:
  void add(std::string_view text) {
    runtime_.budget.bytes(text.size() + sizeof(Stretch));
    out_.append(text, origin_);
  }

  void write(const Value& value) {
    switch (value.kind()) {
      case Kind::undefined:
        return add("Undefined");
      case Kind::none:
        return add("None");
      case Kind::boolean:
        return add(value.as_bool() ? "True" : "False");
      case Kind::integer:
        return add(std::to_string(value.as_integer()));
      case Kind::real:
        return add(real_text(value.as_real()));
      case Kind::string:
        return quoted(value);
      case Kind::list:
        return sequence("[", value.items(), "]");
      case Kind::tuple:
        return sequence("(", value.items(), value.items().size() == 1 ? ",)" : ")");
      case Kind::dict:
        return dict(value.pairs());
      case Kind::range:
        return range(value.object<Range>());
      case Kind::view: {
        add(value.type_name());
        return sequence("([", value.object<View>().items(), "])");
      }
      case Kind::name_space:
        add("<Namespace ");
        dict(value.object<Namespace>().attributes);
        return add(">");
      default:
        return add(fmt::format("<{} object>", value.type_name()));
    }
  }

  void quoted(const Value& text) {
    if (text.is_markup()) add("Markup(");
    const Origin outer = std::exchange(origin_, text.traced().origin());
    add(repr_of_text(text.as_text()));
    origin_ = outer;
    if (text.is_markup()) add(")");
  }

  void sequence(std::string_view open, const std::vector<Value>& items, std::string_view close) {
    add(open);
    for (size_t i = 0; i < items.size(); ++i) {
      if (i) add(", ");
      repr(items[i]);
    }
    add(close);
  }

  void dict(const Pairs& pairs) {
    add("{");
    for (size_t i = 0; i < pairs.size(); ++i) {
      if (i) add(", ");
      repr(pairs[i].first);
      add(": ");
      repr(pairs[i].second);
    }
    add("}");
  }

  void range(const Range& range) {
    add(range.step == 1 ? fmt::format("range({}, {})", range.start, range.stop)
                        : fmt::format("range({}, {}, {})", range.start, range.stop, range.step));
  }

  Runtime& runtime_;
  Origin origin_;  // of the value being written
  TracedText out_;
};

}  // namespace

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[32];
  const char* end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view all(buffer, size_t(end - buffer));
  const size_t e = all.find('e');
  const int exponent = std::stoi(std::string(all.substr(e + 1)));
  if (exponent >= 16 || exponent < -4) return std::string(all);
  const bool negative = all[0] == '-';
  std::string digits;
  for (const char c : all.substr(negative, e - negative)) {
    if (c != '.') digits += c;
  }
  std::string out = negative ? "-" : "";
  if (exponent < 0) return out + "0." + std::string(size_t(-exponent - 1), '0') + digits;
  const size_t whole = size_t(exponent) + 1;
  if (digits.size() < whole + 1) digits.append(whole + 1 - digits.size(), '0');
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string repr_of_text(std::string_view text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const char32_t point = next_point(text, at);
    if (point == char32_t(quote) || point == '\\') {
      out += '\\';
      out += char(point);
    } else if (point == '\n') {
      out += "\\n";
    } else if (point == '\r') {
      out += "\\r";
    } else if (point == '\t') {
      out += "\\t";
    } else if (is_printable(point)) {
      append_utf8(out, point);
    } else if (point < 0x100) {
      out += fmt::format("\\x{:02x}", uint32_t(point));
    } else if (point < 0x10000) {
      out += fmt::format("\\u{:04x}", uint32_t(point));
    } else {
      out += fmt::format("\\U{:08x}", uint32_t(point));
    }
  }
  return out + quote;
}

TracedText repr_of(Runtime& runtime, const Value& value) {
  Writer writer(runtime);
  writer.repr(value);
  return writer.take();
}

TracedText str_of(Runtime& runtime, const Value& value) {
  if (value.is(Kind::undefined)) return {};
  if (!value.is(Kind::string)) return repr_of(runtime, value);
  runtime.budget.bytes(value.traced().memory());
  return value.traced();
}

}  // namespace zeno::data::jinja
