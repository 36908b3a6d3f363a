#include "zeno/checkpoint/json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"

namespace zeno::checkpoint {
namespace {

constexpr size_t kShown = 40;  // bytes of a wrong value in a message

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view kind_of(char c) {
  switch (c) {
    case '{':
      return "object";
    case '[':
      return "array";
    case '"':
      return "string";
    case 't':
    case 'f':
      return "boolean";
    case 'n':
      return "null";
    default:
      return "number";
  }
}

// Can a value begin with it?
bool begins_value(char c) {
  return std::string_view("{[\"tfn-").find(c) != std::string_view::npos || is_digit(c);
}

}  // namespace

JsonReader::JsonReader(std::string_view text, std::string where) : text_(text), where_(std::move(where)) {}

void JsonReader::fail(std::string_view problem) const {
  constexpr size_t kSubject = 120;
  zeno::fail(ErrorKind::data, "{}{}{}: {}", where_, subject_.empty() ? "" : ": ",
             shortened(subject_, kSubject), problem);
}

void JsonReader::malformed(std::string_view expected) {
  const std::string got =
      at_ < text_.size() ? fmt::format("'{}'", shortened(text_.substr(at_), kShown / 2)) : "its end";
  fail(fmt::format("not valid JSON at byte {} of {}: got {}, expected {}", at_, text_.size(), got, expected));
}

void JsonReader::mismatch(std::string_view what, std::string_view expected) {
  const char c = peek();
  if (!begins_value(c)) malformed("a value");
  fail(fmt::format("{} is a JSON {}, expected {}", what, kind_of(c), expected));
}

char JsonReader::peek() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return c;
    ++at_;
  }
  return 0;
}

void JsonReader::enter_object(std::string_view what) {
  if (peek() != '{') mismatch(what, "an object");
  ++at_;
  first_ = true;
}

void JsonReader::enter_array(std::string_view what) {
  if (peek() != '[') mismatch(what, "an array");
  ++at_;
  first_ = true;
}

bool JsonReader::next(char closing) {
  const char c = peek();
  const bool first = std::exchange(first_, false);
  if (c == closing) {
    ++at_;
    return false;
  }
  if (first) return true;
  if (c != ',') malformed(closing == '}' ? "',' or '}'" : "',' or ']'");
  ++at_;
  return true;
}

bool JsonReader::next_key(std::string& key) {
  if (!next('}')) return false;
  if (peek() != '"') malformed("a key");
  string("key", key);
  if (peek() != ':') malformed("':'");
  ++at_;
  return true;
}

bool JsonReader::next_item() {
  if (!next(']')) return false;
  if (!begins_value(peek())) malformed("a value");
  return true;
}

void JsonReader::string(std::string_view what, std::string& out) {
  if (peek() != '"') mismatch(what, "a string");
  const size_t opening = at_++;
  out.clear();
  while (true) {
    const size_t begin = at_;
    while (at_ < text_.size() && uint8_t(text_[at_]) >= 0x20 && text_[at_] != '"' && text_[at_] != '\\')
      ++at_;
    out.append(text_, begin, at_ - begin);
    if (at_ == text_.size()) malformed("the end of a string");
    if (text_[at_] == '"') break;
    if (text_[at_] != '\\') malformed("no control character in a string");
    escape(out);
  }
  ++at_;
  if (!is_valid_utf8(out)) {
    at_ = opening;
    malformed("a string in UTF-8");
  }
}

unsigned JsonReader::four_digits() {
  unsigned code = 0;
  const char* begin = text_.data() + at_;
  const auto [end, error] = std::from_chars(begin, begin + std::min<size_t>(4, text_.size() - at_), code, 16);
  if (error != std::errc() || end != begin + 4) malformed("four hexadecimal digits");
  at_ += 4;
  return code;
}

void JsonReader::escape(std::string& out) {
  constexpr std::string_view kNames = "\"\\/bfnrt", kValues = "\"\\/\b\f\n\r\t";
  ++at_;
  const char c = at_ < text_.size() ? text_[at_] : '\0';
  const size_t plain = kNames.find(c);
  if (c != 'u' && plain == std::string_view::npos) malformed("an escape of JSON");
  ++at_;
  if (c != 'u') {
    out += kValues[plain];
    return;
  }
  char32_t code = four_digits();
  if (code >= 0xd800 && code < 0xdc00) {  // the first of a pair
    if (text_.substr(at_, 2) != "\\u") malformed("the second half of a character");
    at_ += 2;
    const char32_t low = four_digits();
    if (low < 0xdc00 || low > 0xdfff) malformed("the second half of a character");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  } else if (code >= 0xdc00 && code < 0xe000) {
    malformed("the first half of a character before the second");
  }
  append_utf8(out, code);
}

// The text of a number that is none of `what` says when it is more than digits.
std::string_view JsonReader::number(std::string_view what, std::string_view expected) {
  const char c = peek();
  if (c != '-' && !is_digit(c)) mismatch(what, expected);
  const size_t begin = at_;
  const auto digits = [&] {
    if (at_ == text_.size() || !is_digit(text_[at_])) malformed("a digit");
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
  };
  const auto take = [&](std::string_view any) {
    const bool found = at_ < text_.size() && any.find(text_[at_]) != std::string_view::npos;
    at_ += found;
    return found;
  };
  take("-");
  if (!take("0")) digits();
  if (take(".")) digits();
  if (take("eE")) {
    take("+-");
    digits();
  }
  return text_.substr(begin, at_ - begin);
}

uint64_t JsonReader::size(std::string_view what) {
  constexpr std::string_view kExpected = "a non-negative integer";
  const std::string_view text = number(what, kExpected);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    fail(fmt::format("{} holds {}, expected {} below 2^64", what, shortened(text, kShown), kExpected));
  return value;
}

int64_t JsonReader::integer(std::string_view what) {
  const std::string_view text = number(what, "an integer");
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    fail(fmt::format("{} holds {}, expected an integer of 64 bits", what, shortened(text, kShown)));
  return value;
}

std::string_view JsonReader::skip(std::string_view what) {
  if (!begins_value(peek())) mismatch(what, "a value");
  const size_t begin = at_;
  skip_value(0);
  return text_.substr(begin, at_ - begin);
}

void JsonReader::skip_value(int depth) {
  if (depth == kMaxDepth) fail(fmt::format("nested deeper than {} levels at byte {}", kMaxDepth, at_));
  const char c = peek();
  if (c == '{') {
    enter_object("value");
    while (next_key(scratch_)) skip_value(depth + 1);
  } else if (c == '[') {
    enter_array("value");
    while (next_item()) skip_value(depth + 1);
  } else if (c == '"') {
    string("value", scratch_);
  } else if (c == '-' || is_digit(c)) {
    number("value", "a number");
  } else {
    for (const std::string_view word : {"true", "false", "null"}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return;
    }
    malformed("a value");
  }
}

void JsonReader::end() {
  if (peek() != 0 || at_ < text_.size()) malformed("nothing after the value");
}

}  // namespace zeno::checkpoint
