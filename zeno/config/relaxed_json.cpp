#include "zeno/config/relaxed_json.h"

#include <charconv>
#include <cmath>
#include <unordered_set>

#include "zeno/base/error.h"
#include "zeno/base/file.h"
#include "zeno/base/utf8.h"

namespace zeno::config {
namespace {

constexpr int kMaxDepth = 64;           // deeper than any config, shallow enough for every stack
constexpr size_t kMaxBytes = 1u << 20;  // a config is a few kB; a wrong file given by mistake is not

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
         c == '-' || c == '.' || static_cast<unsigned char>(c) >= 0x80;
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  JsonValue parse_document() {
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") line_start_ = at_ = 3;
    skip_space();
    JsonValue value = parse_value(0);
    skip_space();
    if (!done()) error("text after the end of the value");
    return value;
  }

 private:
  bool done() const { return at_ >= text_.size(); }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  int column() const { return static_cast<int>(at_ - line_start_) + 1; }

  void advance() {
    if (text_[at_++] == '\n') {
      ++line_;
      line_start_ = at_;
    }
  }

  [[noreturn]] void error_at(int line, int column, std::string_view what) const {
    fail(ErrorKind::usage, "[config] {}:{}:{}: {}", source_, line, column, what);
  }
  [[noreturn]] void error(std::string_view what) const { error_at(line_, column(), what); }

  std::string seen() const {
    if (done()) return "the end of the text";
    const auto c = static_cast<unsigned char>(peek());
    return c < 0x20 || c == 0x7F ? fmt::format("byte 0x{:02x}", c) : fmt::format("'{}'", word_or_char());
  }

  std::string word_or_char() const {
    size_t end = at_;
    while (end < text_.size() && end - at_ < 32 && is_word(text_[end])) ++end;
    return std::string(text_.substr(at_, end > at_ ? end - at_ : 1));
  }

  // Skips blanks and comments; true when a line ended, which may stand for a comma.
  bool skip_space() {
    const int first_line = line_;
    while (!done()) {
      const char c = peek();
      if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
        advance();
      } else if (c == '#' || (c == '/' && peek(1) == '/')) {
        while (!done() && peek() != '\n') advance();
      } else if (c == '/' && peek(1) == '*') {
        skip_block_comment();
      } else {
        break;
      }
    }
    return line_ != first_line;
  }

  void skip_block_comment() {
    const int line = line_, start = column();
    advance();
    advance();
    while (!(peek() == '*' && peek(1) == '/')) {
      if (done()) error_at(line, start, "a /* comment that never ends");
      advance();
    }
    advance();
    advance();
  }

  JsonValue parse_value(int depth) {
    if (depth > kMaxDepth) error(fmt::format("nested deeper than {} levels", kMaxDepth));
    JsonValue value;
    value.line = line_;
    value.column = column();
    const char c = peek();
    if (done()) {
      error("got the end of the text, expected a value");
    } else if (c == '{') {
      parse_object(value, depth);
    } else if (c == '[') {
      parse_array(value, depth);
    } else if (c == '"' || c == '\'') {
      value.type = JsonValue::Type::string;
      value.text = parse_string();
    } else if ((c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.') {
      parse_number(value);
    } else {
      parse_literal(value);
    }
    return value;
  }

  // After an element: true to continue with the next one. `close` has been consumed when false.
  bool next_element(char close) {
    const bool new_line = skip_space();
    if (peek() == ',') {
      advance();
      skip_space();
      if (peek() == ',') error("two commas in a row");
    } else if (peek() != close && !new_line) {
      error(fmt::format("got {}, expected ',' or '{}'", seen(), close));
    }
    if (done()) error(fmt::format("got the end of the text, expected '{}'", close));
    if (peek() != close) return true;
    advance();
    return false;
  }

  // Enters a bracket: false when it closes at once.
  bool open(char close) {
    advance();
    skip_space();
    if (peek() != close || done()) return true;
    advance();
    return false;
  }

  void parse_object(JsonValue& value, int depth) {
    value.type = JsonValue::Type::object;
    std::unordered_set<std::string> keys;
    for (bool more = open('}'); more; more = next_element('}')) {
      JsonMember member;
      member.line = line_;
      member.column = column();
      member.key = parse_key();
      if (!keys.insert(member.key).second) {
        error_at(member.line, member.column,
                 fmt::format("key \"{}\" is given twice", shortened(member.key, 60)));
      }
      skip_space();
      if (peek() != ':')
        error(fmt::format("got {}, expected ':' after key \"{}\"", seen(), shortened(member.key, 60)));
      advance();
      skip_space();
      member.value = parse_value(depth + 1);
      value.members.push_back(std::move(member));
    }
  }

  void parse_array(JsonValue& value, int depth) {
    value.type = JsonValue::Type::array;
    for (bool more = open(']'); more; more = next_element(']')) value.items.push_back(parse_value(depth + 1));
  }

  std::string parse_key() {
    if (peek() == '"' || peek() == '\'') return parse_string();
    if (done() || !is_word(peek())) error(fmt::format("got {}, expected a key", seen()));
    std::string key;
    while (is_word(peek())) {
      key += peek();
      advance();
    }
    return key;
  }

  std::string parse_string() {
    const int line = line_, start = column();
    const char quote = peek();
    advance();
    std::string out;
    while (peek() != quote || done()) {
      if (done() || peek() == '\n') error_at(line, start, "a string that never ends");
      if (peek() == '\\') {
        parse_escape(out);
      } else if (static_cast<unsigned char>(peek()) < 0x20 && peek() != '\t') {
        error(fmt::format("control {} in a string; write it as \\u{:04x}", seen(), static_cast<int>(peek())));
      } else {
        out += peek();
        advance();
      }
    }
    advance();
    return out;
  }

  void parse_escape(std::string& out) {
    advance();
    const char c = peek();
    constexpr std::string_view kFrom = "\"'\\/bfnrt", kTo = "\"'\\/\b\f\n\r\t";
    if (c == 'u') {
      advance();
      append_utf8(out, parse_code_point());
    } else if (const size_t i = kFrom.find(c); i != std::string_view::npos && !done()) {
      out += kTo[i];
      advance();
    } else {
      error(fmt::format("unknown escape: got {} after \\", seen()));
    }
  }

  uint32_t parse_hex4() {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) error(fmt::format("got {}, expected four hex digits after \\u", seen()));
      code = code * 16 + static_cast<uint32_t>(digit);
      advance();
    }
    return code;
  }

  uint32_t parse_code_point() {
    const uint32_t high = parse_hex4();
    if (high < 0xD800 || high > 0xDFFF) return high;
    if (high > 0xDBFF || peek() != '\\' || peek(1) != 'u') error("half of a \\u surrogate pair");
    advance();
    advance();
    const uint32_t low = parse_hex4();
    if (low < 0xDC00 || low > 0xDFFF) error("half of a \\u surrogate pair");
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
  }

  void parse_number(JsonValue& value) {
    const size_t start = at_;
    while (is_word(peek()) || peek() == '+') advance();
    value.type = JsonValue::Type::number;
    value.text = std::string(text_.substr(start, at_ - start));
    std::string_view digits = value.text;
    if (digits.front() == '+') digits.remove_prefix(1);
    const bool plausible = digits.find_first_not_of("0123456789+-.eE") == std::string_view::npos;
    const char* end = digits.data() + digits.size();
    const auto [stop, status] = std::from_chars(digits.data(), end, value.number);
    const std::string shown = value.text.substr(0, 40);
    if (!plausible || stop != end || status == std::errc::invalid_argument) {
      error_at(value.line, value.column,
               fmt::format("got {}, expected a number; strings need quotes", shown));
    }
    if (status == std::errc::result_out_of_range) {
      error_at(value.line, value.column, fmt::format("the number {} is out of range", shown));
    }
    int64_t exact = 0;
    const auto whole = std::from_chars(digits.data(), end, exact);
    if (whole.ptr == end && whole.ec == std::errc()) {
      value.integer = exact;
    } else if (value.number == std::floor(value.number) && std::abs(value.number) < 0x1p63) {
      value.integer = static_cast<int64_t>(value.number);
    }
  }

  void parse_literal(JsonValue& value) {
    const std::string word = word_or_char();
    if (word == "true" || word == "false") {
      value.type = JsonValue::Type::boolean;
      value.boolean = word == "true";
    } else if (word == "NaN" || word == "nan" || word == "Infinity" || word == "inf") {
      error(fmt::format("got {}, expected a finite number", word));
    } else if (word == "True" || word == "False" || word == "None") {
      error(fmt::format("got {}, which is Python; JSON spells it {}", word,
                        word == "None"   ? "null"
                        : word == "True" ? "true"
                                         : "false"));
    } else if (word != "null") {
      error(fmt::format("got {}, expected a value; strings need quotes", seen()));
    }
    for (size_t i = 0; i < word.size(); ++i) advance();
  }

  std::string_view text_, source_;
  size_t at_ = 0, line_start_ = 0;
  int line_ = 1;
};

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  for (const JsonMember& member : members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

std::string_view name_of(JsonValue::Type type) {
  switch (type) {
    case JsonValue::Type::null:
      return "null";
    case JsonValue::Type::boolean:
      return "a boolean";
    case JsonValue::Type::number:
      return "a number";
    case JsonValue::Type::string:
      return "a string";
    case JsonValue::Type::array:
      return "a list";
    case JsonValue::Type::object:
      return "a block";
  }
  return "?";
}

std::string to_text(const JsonValue& value) {
  std::string out;
  switch (value.type) {
    case JsonValue::Type::null:
      return "null";
    case JsonValue::Type::boolean:
      return value.boolean ? "true" : "false";
    case JsonValue::Type::number:
      return value.text;
    case JsonValue::Type::string:
      return '"' + value.text + '"';
    case JsonValue::Type::array:
      for (const JsonValue& item : value.items) out += (out.empty() ? "" : ", ") + to_text(item);
      return '[' + out + ']';
    case JsonValue::Type::object:
      for (const JsonMember& m : value.members)
        out += (out.empty() ? "" : ", ") + m.key + ": " + to_text(m.value);
      return '{' + out + '}';
  }
  return out;
}

std::optional<std::string> decode_base64(std::string_view text) {
  while (!text.empty() && (text.back() == '=' || text.back() == '\n')) text.remove_suffix(1);
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int digit = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '-' || c == '+' ? 62
                      : c == '_' || c == '/' ? 63
                                             : -1;
    if (digit < 0) return std::nullopt;
    bits = (bits << 6) | static_cast<uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out += static_cast<char>((bits >> count) & 0xFF);
    }
  }
  if (count >= 6) return std::nullopt;  // one digit too many
  return out;
}

JsonValue parse_relaxed_json(std::string_view text, std::string_view source) {
  require(text.size() <= kMaxBytes, ErrorKind::usage, "[config] {}: got {} bytes, expected at most {}",
          source, text.size(), kMaxBytes);
  return Parser(text, source).parse_document();
}

JsonDocument load_relaxed_json(const std::string& path_or_base64) {
  if (!file_exists(path_or_base64)) {
    const std::optional<std::string> decoded = decode_base64(path_or_base64);
    const bool is_config = decoded && decoded->find('{') != std::string::npos;
    require(is_config, ErrorKind::usage,
            "[config] {}: got neither a file nor a base64 config, expected the path of a DeepSpeed JSON file",
            path_or_base64.substr(0, 200));
    return {parse_relaxed_json(*decoded, "<base64>"), "<base64>"};
  }
  const File file = File::open(path_or_base64);
  const uint64_t size = file.size();
  require(size <= kMaxBytes, ErrorKind::usage, "[config] {}: got {} bytes, expected at most {}",
          path_or_base64, size, kMaxBytes);
  std::string text(size, '\0');
  file.read_at(text.data(), text.size(), 0);
  return {parse_relaxed_json(text, path_or_base64), path_or_base64};
}

}  // namespace zeno::config
