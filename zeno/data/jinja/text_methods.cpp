// The methods of texts.
#include <fmt/core.h>

#include <algorithm>

#include "zeno/data/jinja/attributes.h"
#include "zeno/data/jinja/format.h"
#include "zeno/data/jinja/markup.h"
#include "zeno/data/jinja/operators.h"
#include "zeno/data/jinja/python_text.h"
#include "zeno/data/jinja/unicode.h"

namespace zeno::data::jinja {
namespace {

using Method = Value (*)(Runtime&, const TracedText& self, const Arguments&);

void no_arguments(std::string_view name, const Arguments& arguments) {
  const Bound bound(name, {}, 0, arguments);
}

void positional_only(std::string_view name, const Arguments& arguments) {
  if (!arguments.named.empty()) throw RenderError(fmt::format("{}: takes no named arguments", name));
}

template <std::string (*change)(std::string_view)>
Value changed(Runtime&, const TracedText& self, const Arguments& arguments) {
  no_arguments("text method", arguments);
  return Value::text(self.changed(change));
}

template <bool left, bool right>
Value strip(Runtime&, const TracedText& self, const Arguments& arguments) {
  positional_only("strip", arguments);
  const Bound bound("strip", {"characters"}, 0, arguments);
  std::string_view text = self.str();
  if (left) text = bound.set(0) ? strip_left(text, bound.text(0)) : strip_left(text);
  if (right) text = bound.set(0) ? strip_right(text, bound.text(0)) : strip_right(text);
  return Value::text(self.part(text));
}

// [begin, end) as str.find and its relatives cut it, in bytes.
std::pair<size_t, size_t> window(const std::string& self, const Bound& bound) {
  const int64_t size = int64_t(point_count(self));
  const auto byte_of = [&](int64_t point) {
    if (point < 0) point += size;
    size_t at = 0;
    for (int64_t i = 0; i < point && at < self.size(); ++i) next_point(self, at);
    return at;
  };
  const size_t begin = bound.set(1) ? byte_of(bound.integer(1, 0)) : 0;
  const size_t end = bound.set(2) ? byte_of(bound.integer(2, 0)) : self.size();
  // A start behind the end of the text matches nothing, not even "".
  if (bound.set(1) && bound.integer(1, 0) > size) return {1, 0};
  return {begin, end};
}

template <bool at_start>
Value affixed(Runtime&, const TracedText& self, const Arguments& arguments) {
  positional_only("startswith/endswith", arguments);
  const Bound bound(at_start ? "startswith" : "endswith", {"affix", "start", "end"}, 1, arguments);
  const auto [begin, end] = window(self.str(), bound);
  if (begin > end) return Value::boolean(false);
  const std::string_view text = std::string_view(self.str()).substr(begin, end - begin);
  const auto matches = [&, text = text](const Value& affix) {
    require_defined(affix);
    if (!affix.is(Kind::string))
      throw RenderError("startswith/endswith: expected a text or a tuple of texts");
    return at_start ? text.starts_with(affix.as_text()) : text.ends_with(affix.as_text());
  };
  if (!bound[0].is(Kind::tuple)) return Value::boolean(matches(bound[0]));
  const auto& affixes = bound[0].items();
  return Value::boolean(std::any_of(affixes.begin(), affixes.end(), matches));
}

template <bool last, bool must>
Value found(Runtime& runtime, const TracedText& self, const Arguments& arguments) {
  positional_only("find", arguments);
  const Bound bound(must ? "index" : "find", {"sub", "start", "end"}, 1, arguments);
  const std::string& wanted = bound.text(0);
  runtime.budget.step(self.size() / 16);
  const auto [begin, end] = window(self.str(), bound);
  size_t at = std::string::npos;
  if (begin <= end) {
    const std::string_view text = std::string_view(self.str()).substr(begin, end - begin);
    at = last ? text.rfind(wanted) : text.find(wanted);
  }
  if (at == std::string::npos) {
    if (must) throw RenderError("index: the text is not found");
    return Value::integer(-1);
  }
  return Value::integer(int64_t(point_count(std::string_view(self.str()).substr(0, begin + at))));
}

Value count(Runtime& runtime, const TracedText& self, const Arguments& arguments) {
  positional_only("count", arguments);
  const Bound bound("count", {"sub", "start", "end"}, 1, arguments);
  const std::string& wanted = bound.text(0);
  runtime.budget.step(self.size() / 16);
  const auto [begin, end] = window(self.str(), bound);
  if (begin > end) return Value::integer(0);
  const std::string_view text = std::string_view(self.str()).substr(begin, end - begin);
  if (wanted.empty()) return Value::integer(int64_t(point_count(text)) + 1);
  int64_t times = 0;
  for (size_t at = text.find(wanted); at != text.npos; at = text.find(wanted, at + wanted.size())) ++times;
  return Value::integer(times);
}

Value replace(Runtime& runtime, const TracedText& self, const Arguments& arguments) {
  positional_only("replace", arguments);
  const Bound bound("replace", {"old", "new", "count"}, 2, arguments);
  bound.text(1);  // must be one
  return Value::text(replaced(runtime, self, bound.text(0), bound[1].traced(), bound.integer(2, -1)));
}

Value join_items(Runtime& runtime, const TracedText& self, const Arguments& arguments) {
  positional_only("join", arguments);
  const Bound bound("join", {"iterable"}, 1, arguments);
  TracedText out;
  bool first = true;
  for (const Value& item : iterate(runtime, bound[0])) {
    require_defined(item);
    if (!item.is(Kind::string))
      throw RenderError(fmt::format("join: got a {}, expected texts", item.type_name()));
    if (!first) out.append(self);
    runtime.budget.bytes(self.memory() + item.traced().memory() + 2 * sizeof(Stretch));
    out.append(item.traced());
    first = false;
  }
  return Value::text(std::move(out));
}

// `parts` of `self`.
Value as_list(Runtime& runtime, const TracedText& self, const std::vector<std::string_view>& parts) {
  runtime.budget.step(parts.size());
  std::vector<Value> items;
  for (const std::string_view part : parts) {
    runtime.budget.bytes(part.size() + sizeof(Stretch) + sizeof(Value));
    items.push_back(Value::text(self.part(part)));
  }
  return Value::list(std::move(items));
}

std::vector<std::string_view> split_on_space(std::string_view text, int64_t most, bool from_right) {
  std::vector<std::string_view> parts;
  text = from_right ? strip_right(text) : strip_left(text);
  while (!text.empty() && (most < 0 || int64_t(parts.size()) < most)) {
    const auto is_word_end = [&](size_t at) {
      size_t after = at;
      return is_space(next_point(text, after));
    };
    size_t begin = 0, end = text.size();
    if (from_right) {
      begin = text.size();
      while (begin > 0) {
        size_t before = begin - 1;
        while (before > 0 && (static_cast<unsigned char>(text[before]) & 0xc0) == 0x80) --before;
        if (is_word_end(before)) break;
        begin = before;
      }
    } else {
      end = 0;
      while (end < text.size() && !is_word_end(end)) next_point(text, end);
    }
    parts.push_back(text.substr(begin, end - begin));
    text = from_right ? strip_right(text.substr(0, begin)) : strip_left(text.substr(end));
  }
  if (!text.empty()) parts.push_back(text);
  return parts;
}

std::vector<std::string_view> split_on(std::string_view text, std::string_view mark, int64_t most,
                                       bool from_right) {
  std::vector<std::string_view> parts;
  while (most < 0 || int64_t(parts.size()) < most) {
    const size_t at = from_right ? text.rfind(mark) : text.find(mark);
    if (at == text.npos) break;
    parts.push_back(from_right ? text.substr(at + mark.size()) : text.substr(0, at));
    text = from_right ? text.substr(0, at) : text.substr(at + mark.size());
  }
  parts.push_back(text);
  return parts;
}

template <bool from_right>
Value split(Runtime& runtime, const TracedText& self, const Arguments& arguments) {
  const Bound bound("split", {"sep", "maxsplit"}, 0, arguments);
  const int64_t most = bound.integer(1, -1);
  if (bound.set(0) && bound.text(0).empty()) throw RenderError("split: the separator is empty");
  runtime.budget.step(self.size() / 16);
  std::vector<std::string_view> parts = bound.set(0) ? split_on(self.str(), bound.text(0), most, from_right)
                                                     : split_on_space(self.str(), most, from_right);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return as_list(runtime, self, parts);
}

template <bool from_right>
Value partition(Runtime&, const TracedText& self, const Arguments& arguments) {
  positional_only("partition", arguments);
  const Bound bound("partition", {"sep"}, 1, arguments);
  const std::string& mark = bound.text(0);
  if (mark.empty()) throw RenderError("partition: the separator is empty");
  const size_t at = from_right ? self.str().rfind(mark) : self.str().find(mark);
  const Value all = Value::text(self), empty = Value::text("");
  if (at == std::string::npos)
    return from_right ? Value::tuple({empty, empty, all}) : Value::tuple({all, empty, empty});
  return Value::tuple({Value::text(self.part(0, at)), bound[0], Value::text(self.part(at + mark.size()))});
}

Value split_into_lines(Runtime& runtime, const TracedText& self, const Arguments& arguments) {
  const Bound bound("splitlines", {"keepends"}, 0, arguments);
  return as_list(runtime, self, split_lines(self.str(), bound.truth(0, false)));
}

template <bool prefix>
Value removed(Runtime&, const TracedText& self, const Arguments& arguments) {
  positional_only("removeprefix", arguments);
  const Bound bound("removeprefix", {"affix"}, 1, arguments);
  const std::string& affix = bound.text(0);
  if (prefix) return Value::text(self.str().starts_with(affix) ? self.part(affix.size()) : self);
  return Value::text(self.str().ends_with(affix) ? self.part(0, self.size() - affix.size()) : self);
}

// All characters pass, and there is at least one.
template <bool (*test)(char32_t)>
Value all_are(Runtime&, const TracedText& self, const Arguments& arguments) {
  no_arguments("text method", arguments);
  const std::u32string list = points(self.str());
  return Value::boolean(!list.empty() && std::all_of(list.begin(), list.end(), test));
}

bool is_word(char32_t point) { return is_alpha(point) || is_digit(point); }

template <bool (*wanted)(char32_t), bool (*other)(char32_t)>
Value cased(Runtime&, const TracedText& self, const Arguments& arguments) {
  no_arguments("text method", arguments);
  const std::u32string list = points(self.str());
  return Value::boolean(std::any_of(list.begin(), list.end(), wanted) &&
                        std::none_of(list.begin(), list.end(), other));
}

template <char align>
Value justified(Runtime& runtime, const TracedText& self, const Arguments& arguments) {
  positional_only("just", arguments);
  const Bound bound("just", {"width", "fillchar"}, 1, arguments);
  const std::string fill = bound.has(1) ? bound.text(1) : " ";
  if (point_count(fill) != 1) throw RenderError("just: the fill must be one character");
  const int64_t missing = std::max<int64_t>(0, bound.integer(0, 0) - int64_t(point_count(self.str())));
  runtime.budget.bytes(uint64_t(missing) * fill.size());
  // Python's str.center puts the odd one left when both numbers are odd.
  const int64_t left = align == '<'   ? 0
                       : align == '>' ? missing
                                      : missing / 2 + (missing & bound.integer(0, 0) & 1);
  TracedText out;
  for (int64_t i = 0; i < left; ++i) out.append(fill);
  out.append(self);
  for (int64_t i = left; i < missing; ++i) out.append(fill);
  return Value::text(std::move(out));
}

Value zero_filled(Runtime& runtime, const TracedText& self, const Arguments& arguments) {
  const Bound bound("zfill", {"width"}, 1, arguments);
  const int64_t missing = std::max<int64_t>(0, bound.integer(0, 0) - int64_t(point_count(self.str())));
  runtime.budget.bytes(uint64_t(missing));
  const std::string& text = self.str();
  const bool sign = !text.empty() && (text[0] == '-' || text[0] == '+');
  TracedText out = self.part(0, sign);
  out.append(std::string(size_t(missing), '0'));
  out.append(self.part(sign));
  return Value::text(std::move(out));
}

Value format(Runtime& runtime, const TracedText& self, const Arguments& arguments) {
  return brace_format(runtime, self, arguments);
}

constexpr std::pair<std::string_view, Method> kMethods[] = {
    {"strip", strip<true, true>},
    {"lstrip", strip<true, false>},
    {"rstrip", strip<false, true>},
    {"startswith", affixed<true>},
    {"endswith", affixed<false>},
    {"split", split<false>},
    {"rsplit", split<true>},
    {"splitlines", split_into_lines},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"replace", replace},
    {"join", join_items},
    {"find", found<false, false>},
    {"rfind", found<true, false>},
    {"index", found<false, true>},
    {"rindex", found<true, true>},
    {"count", count},
    {"upper", changed<to_upper>},
    {"lower", changed<to_lower>},
    {"casefold", changed<to_lower>},
    {"swapcase", changed<to_swapped>},
    {"title", changed<to_title>},
    {"capitalize", changed<to_capitalized>},
    {"removeprefix", removed<true>},
    {"removesuffix", removed<false>},
    {"isdigit", all_are<is_digit>},
    {"isnumeric", all_are<is_digit>},
    {"isdecimal", all_are<is_digit>},
    {"isalpha", all_are<is_alpha>},
    {"isalnum", all_are<is_word>},
    {"isspace", all_are<is_space>},
    {"isupper", cased<is_upper, is_lower>},
    {"islower", cased<is_lower, is_upper>},
    {"ljust", justified<'<'>},
    {"rjust", justified<'>'>},
    {"center", justified<'^'>},
    {"zfill", zero_filled},
    {"format", format},
};

// Methods of markup whose arguments become part of it. (The first argument of replace is searched as it is.)
bool escapes_arguments(std::string_view name) {
  return name == "join" || name == "replace" || name == "format";
}

Arguments escaped_arguments(Runtime& runtime, const Arguments& given) {
  const auto markup = [&](const Value& value) { return Value::text(escaped(runtime, value), true); };
  Arguments out = given;
  for (size_t i = 0; i < out.positional.size(); ++i) {
    Value& value = out.positional[i];
    if (value.is(Kind::string)) {
      value = markup(value);
    } else if (is_iterable(value) && !value.is(Kind::undefined)) {
      std::vector<Value> items = iterate(runtime, value);
      for (Value& item : items) {
        if (item.is(Kind::string)) item = markup(item);
      }
      value = Value::list(std::move(items));
    }
  }
  for (auto& [name, value] : out.named) {
    if (value.is(Kind::string)) value = markup(value);
  }
  return out;
}

}  // namespace

std::optional<Value> text_method(const Value& text, std::string_view name) {
  for (const auto& [known, method] : kMethods) {
    if (known != name) continue;
    const bool escapes = text.is_markup() && escapes_arguments(name);
    return make_method(
        std::string(name), text,
        [text, method = method, escapes](Runtime& runtime, const Arguments& arguments) {
          runtime.budget.bytes(text.traced().memory());
          if (!text.is_markup()) return method(runtime, text.traced(), arguments);
          return as_markup(
              method(runtime, text.traced(), escapes ? escaped_arguments(runtime, arguments) : arguments));
        });
  }
  return std::nullopt;
}

}  // namespace zeno::data::jinja
