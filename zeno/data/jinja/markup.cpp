#include "zeno/data/jinja/markup.h"

#include "zeno/data/jinja/python_text.h"

namespace zeno::data::jinja {
namespace {

std::string escape_characters(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace

TracedText escape_html(const TracedText& text) { return text.changed(escape_characters); }

TracedText escaped(Runtime& runtime, const Value& value) {
  const TracedText text = str_of(runtime, value);
  return value.is_markup() ? text : escape_html(text);
}

Value as_markup(const Value& value) {
  if (value.is(Kind::string)) return Value::text(value.traced(), true);
  if (!value.is(Kind::list) && !value.is(Kind::tuple)) return value;
  std::vector<Value> items;
  for (const Value& item : value.items()) items.push_back(as_markup(item));
  return value.is(Kind::list) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

}  // namespace zeno::data::jinja
