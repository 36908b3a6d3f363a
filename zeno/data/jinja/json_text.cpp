// The json.dumps() of python_text.h.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "zeno/base/utf8.h"
#include "zeno/data/jinja/operators.h"
#include "zeno/data/jinja/python_text.h"
#include "zeno/data/jinja/unicode.h"

namespace zeno::data::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  void write(const Value& value) {
    const Budget::Level level(runtime_.budget);
    runtime_.budget.step();
    const Origin outer = std::exchange(origin_, value.origin());
    write_kind(value);
    origin_ = outer;
  }

  TracedText take() { return std::move(out_); }

 private:
  void write_kind(const Value& value) {
    switch (value.kind()) {
      case Kind::string:
        return quoted(value.traced());
      case Kind::list:
      case Kind::tuple:
        return array(value.items());
      case Kind::dict:
        return object(value.pairs());
      default:
        return add(scalar(value));
    }
  }

  void add(std::string_view text) {
    runtime_.budget.bytes(text.size() + sizeof(Stretch));
    out_.append(text, origin_);
  }

  static std::string scalar(const Value& value) {
    switch (value.kind()) {
      case Kind::none:
        return "null";
      case Kind::boolean:
        return value.as_bool() ? "true" : "false";
      case Kind::integer:
        return std::to_string(value.as_integer());
      case Kind::real:
        if (std::isnan(value.as_real())) return "NaN";
        if (std::isinf(value.as_real())) return value.as_real() < 0 ? "-Infinity" : "Infinity";
        return real_text(value.as_real());
      case Kind::undefined:
        throw RenderError(fmt::format("tojson: {}", value.as_text()));
      default:
        throw RenderError(fmt::format("tojson: a {} is not JSON", value.type_name()));
    }
  }

  void quoted(const TracedText& text) {
    const TracedText inside = text.changed([this](std::string_view part) { return escaped(part); });
    const std::vector<Stretch> stretches = inside.stretches();
    const Origin outer = origin_;
    origin_ = stretches.front().origin;
    add("\"");
    runtime_.budget.bytes(inside.memory());
    out_.append(inside);
    origin_ = stretches.back().origin;
    add("\"");
    origin_ = outer;
  }

  std::string escaped(std::string_view text) const {
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const char32_t point = next_point(text, at);
      switch (point) {
        case '"':
          out += "\\\"";
          break;
        case '\\':
          out += "\\\\";
          break;
        case '\n':
          out += "\\n";
          break;
        case '\r':
          out += "\\r";
          break;
        case '\t':
          out += "\\t";
          break;
        case '\b':
          out += "\\b";
          break;
        case '\f':
          out += "\\f";
          break;
        default:
          plain(out, point);
      }
    }
    return out;
  }

  void plain(std::string& out, char32_t point) const {
    if (point >= 0x20 && (point < 0x7f || !style_.ensure_ascii)) {
      append_utf8(out, point);
    } else if (point >= 0x10000) {
      const uint32_t rest = uint32_t(point) - 0x10000;
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
    } else if (point == 0x7f) {
      out += '\x7f';
    } else {
      out += fmt::format("\\u{:04x}", uint32_t(point));
    }
  }

  void new_line() {
    if (!style_.indent) return;
    add("\n");
    for (int i = 0; i < level_; ++i) add(*style_.indent);
  }

  template <class Item, class WriteItem>
  void block(std::string_view brackets, const std::vector<Item>& items, WriteItem write_item) {
    if (items.empty()) return add(brackets);
    add(brackets.substr(0, 1));
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i) add(style_.item_separator);
      new_line();
      write_item(items[i]);
    }
    --level_;
    new_line();
    add(brackets.substr(1));
  }

  void array(const std::vector<Value>& items) {
    block("[]", items, [&](const Value& item) { write(item); });
  }

  void object(const Pairs& pairs) {
    Pairs sorted;
    if (style_.sort_keys) {
      sorted = pairs;
      std::stable_sort(sorted.begin(), sorted.end(),
                       [&](const auto& a, const auto& b) { return less(runtime_, a.first, b.first); });
    }
    block("{}", style_.sort_keys ? sorted : pairs, [&](const std::pair<Value, Value>& pair) {
      quoted(pair.first.is(Kind::string) ? pair.first.traced() : TracedText(scalar(pair.first), origin_));
      add(style_.key_separator);
      write(pair.second);
    });
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  Origin origin_;  // of the value being written
  TracedText out_;
  int level_ = 0;
};

}  // namespace

TracedText json_of(Runtime& runtime, const Value& value, const JsonStyle& style) {
  JsonWriter writer(runtime, style);
  writer.write(value);
  return writer.take();
}

}  // namespace zeno::data::jinja
