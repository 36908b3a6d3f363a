#include "zeno/data/jinja/lexer.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"
#include "zeno/data/jinja/string_literal.h"
#include "zeno/data/jinja/unicode.h"

namespace zeno::data::jinja {
namespace {

constexpr size_t kNowhere = std::string_view::npos;

bool is_decimal(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) {
  return ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}

std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    const bool carriage = source[i] == '\r';
    out += carriage ? '\n' : source[i];
    if (carriage && i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string source, const std::string& where) : source_(std::move(source)), where_(where) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) data();
    add(Token::Kind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { syntax_error(where_, line_, what); }

  Token& add(Token::Kind kind, std::string text) {
    Token token;
    token.kind = kind;
    token.line = line_;
    token.text = std::move(text);
    tokens_.push_back(std::move(token));
    return tokens_.back();
  }

  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool looking_at(std::string_view text) const { return rest().starts_with(text); }

  // Moves on to `position` and counts the lines on the way.
  void move_to(size_t position) {
    line_ += int(
        std::count(source_.begin() + std::ptrdiff_t(at_), source_.begin() + std::ptrdiff_t(position), '\n'));
    at_ = position;
  }

  void skip_space() { move_to(source_.size() - strip_left(rest()).size()); }

  // Text up to the next mark, with what the mark's sign takes away from it.
  void add_data(size_t end, char sign, bool strips_line) {
    std::string_view text = rest().substr(0, end - at_);
    if (sign == '-') {
      text = strip_right(text);
    } else if (sign != '+' && strips_line) {
      const size_t newline = text.rfind('\n');
      const size_t begin = newline == kNowhere ? 0 : newline + 1;
      if ((begin > 0 || line_starts_) && all_space(text.substr(begin))) text = text.substr(0, begin);
    }
    if (!text.empty()) add(Token::Kind::data, std::string(text));
    move_to(end);
  }

  char sign_at(size_t position) const {
    const char c = position < source_.size() ? source_[position] : 0;
    return c == '-' || c == '+' ? c : 0;
  }

  // Ends a block or comment mark at `at_`: `-` eats white space, `+` keeps the newline that is dropped
  // otherwise.
  bool close_mark(std::string_view mark) {
    const char sign = sign_at(at_);
    if (!rest().substr(sign ? 1 : 0).starts_with(mark)) return false;
    move_to(at_ + mark.size() + (sign ? 1 : 0));
    if (sign == '-') skip_space();
    if (!sign && looking_at("\n")) move_to(at_ + 1);
    line_starts_ = source_[at_ - 1] == '\n';
    return true;
  }

  void data() {
    size_t mark = at_;
    while ((mark = source_.find('{', mark)) != kNowhere) {
      const char next = mark + 1 < source_.size() ? source_[mark + 1] : 0;
      if (next == '%' || next == '{' || next == '#') break;
      ++mark;
    }
    if (mark == kNowhere) {
      add(Token::Kind::data, source_.substr(at_));
      return move_to(source_.size());
    }
    const char kind = source_[mark + 1], sign = sign_at(mark + 2);
    add_data(mark, sign, kind != '{');
    move_to(mark + 2 + (sign ? 1 : 0));
    line_starts_ = false;
    if (kind == '#') return comment();
    if (kind == '%' && raw()) return;
    tag(kind == '%');
  }

  void comment() {
    const size_t end = source_.find("#}", at_);
    if (end == kNowhere) fail("a comment is not closed with #}");
    const bool signed_end = end > at_ && sign_at(end - 1);
    move_to(signed_end ? end - 1 : end);
    close_mark("#}");
  }

  // {% raw %} … {% endraw %}; the mark {% is behind us.
  bool raw() {
    const size_t begin = at_;
    const int begin_line = line_;
    skip_space();
    const bool is_raw = looking_at("raw");
    if (is_raw) {
      move_to(at_ + 3);
      skip_space();
    }
    if (!is_raw || !(looking_at("%}") || looking_at("-%}"))) {
      at_ = begin;
      line_ = begin_line;
      return false;
    }
    const bool strips = looking_at("-");
    move_to(at_ + (strips ? 3 : 2));
    if (strips) skip_space();
    line_starts_ = source_[at_ - 1] == '\n';
    const std::optional<size_t> end = find_endraw();
    if (!end) fail("raw is not closed with endraw");
    const char sign = sign_at(*end + 2);
    add_data(*end, sign, true);
    move_to(source_.find("endraw", at_) + 6);
    skip_space();
    close_mark("%}");
    return true;
  }

  std::optional<size_t> find_endraw() const {
    for (size_t mark = source_.find("{%", at_); mark != kNowhere; mark = source_.find("{%", mark + 2)) {
      std::string_view text = std::string_view(source_).substr(mark + 2);
      if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
      text = strip_left(text);
      if (!text.starts_with("endraw")) continue;
      text = strip_left(text.substr(6));
      if (text.starts_with("%}") || text.starts_with("-%}") || text.starts_with("+%}")) return mark;
    }
    return std::nullopt;
  }

  void tag(bool block) {
    add(block ? Token::Kind::block_begin : Token::Kind::print_begin, "");
    std::string open;  // brackets that are not closed yet: marks inside them are no marks
    while (true) {
      skip_space();
      if (at_ >= source_.size())
        fail(block ? "a block is not closed with %}" : "an expression is not closed with }}");
      if (open.empty() && end_tag(block)) return;
      token(open);
    }
  }

  bool end_tag(bool block) {
    const int line = line_;
    if (block) {
      if (!close_mark("%}")) return false;
    } else {
      const bool strips = looking_at("-}}");
      if (!strips && !looking_at("}}")) return false;
      move_to(at_ + (strips ? 3 : 2));
      if (strips) skip_space();
      line_starts_ = source_[at_ - 1] == '\n';
    }
    add(block ? Token::Kind::block_end : Token::Kind::print_end, "").line = line;
    return true;
  }

  void token(std::string& open) {
    const char c = source_[at_];
    if (is_decimal(c)) return number();
    if (is_name_start(c)) return name();
    if (c == '\'' || c == '"') return string(c);
    sign(open);
  }

  void name() {
    size_t end = at_;
    while (end < source_.size() && (is_name_start(source_[end]) || is_decimal(source_[end]))) ++end;
    add(Token::Kind::name, source_.substr(at_, end - at_));
    move_to(end);
  }

  void string(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail("a string is not closed");
    std::string text;
    try {
      text = unescaped(std::string_view(source_).substr(at_ + 1, end - at_ - 1));
    } catch (const std::invalid_argument& error) {
      fail(error.what());
    }
    add(Token::Kind::string, std::move(text));
    move_to(end + 1);
  }

  // Digits with single underscores between them, from `from`; where they end.
  size_t digits(size_t from) const {
    size_t end = from;
    while (end < source_.size() &&
           (is_decimal(source_[end]) || (source_[end] == '_' && end > from && end + 1 < source_.size() &&
                                         is_decimal(source_[end + 1]) && source_[end - 1] != '_'))) {
      ++end;
    }
    return end;
  }

  void number() {
    const char second = at_ + 1 < source_.size() ? char(source_[at_ + 1] | 0x20) : 0;
    if (source_[at_] == '0' && (second == 'x' || second == 'o' || second == 'b')) return based(second);
    size_t end = digits(at_);
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    bool real = false;
    if (!after_dot && end + 1 < source_.size() && source_[end] == '.' && is_decimal(source_[end + 1])) {
      real = true;
      end = digits(end + 1);
    }
    if (!after_dot && end < source_.size() && (source_[end] | 0x20) == 'e') {
      const size_t exponent = end + 1 + (sign_at(end + 1) ? 1 : 0);
      if (exponent < source_.size() && is_decimal(source_[exponent])) {
        real = true;
        end = digits(exponent);
      }
    }
    std::string text = source_.substr(at_, end - at_);
    std::erase(text, '_');
    if (real) {
      add(Token::Kind::real, text).real = std::strtod(text.c_str(), nullptr);
    } else {
      if (text.size() > 1 && text[0] == '0' && text.find_first_not_of('0') != text.npos)
        fail("a number begins with 0");
      add_integer(text, 10);
    }
    move_to(end);
  }

  void based(char letter) {
    const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : 2;
    size_t end = at_ + 2;
    while (end < source_.size() &&
           (std::isxdigit(static_cast<unsigned char>(source_[end])) || source_[end] == '_'))
      ++end;
    std::string text = source_.substr(at_ + 2, end - at_ - 2);
    std::erase(text, '_');
    add_integer(text, base);
    move_to(end);
  }

  void add_integer(const std::string& text, int base) {
    char* end = nullptr;
    errno = 0;
    const long long value = std::strtoll(text.c_str(), &end, base);
    if (text.empty() || *end) fail("a malformed number");
    if (errno == ERANGE) fail(fmt::format("integer beyond 64 bits: {}", text));
    add(Token::Kind::integer, text).integer = value;
  }

  void sign(std::string& open) {
    static constexpr std::string_view signs[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "/",
                                                 "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                 ">",  "<",  "=",  ".",  ":",  "|",  ","};
    for (const std::string_view known : signs) {
      if (!looking_at(known)) continue;
      balance(open, known[0]);
      add(Token::Kind::sign, std::string(known));
      return move_to(at_ + known.size());
    }
    size_t after = at_;
    next_point(source_, after);
    fail(fmt::format("unexpected character '{}'", source_.substr(at_, after - at_)));
  }

  void balance(std::string& open, char c) const {
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c != ')' && c != ']' && c != '}') return;
    if (open.empty() || open.back() != c) fail(fmt::format("unexpected '{}'", c));
    open.pop_back();
  }

  const std::string source_;
  const std::string& where_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // only a newline, or nothing, is before at_
  std::vector<Token> tokens_;
};

}  // namespace

std::string Token::describe() const {
  switch (kind) {
    case Kind::data:
      return "text";
    case Kind::block_begin:
      return "{%";
    case Kind::block_end:
      return "%}";
    case Kind::print_begin:
      return "{{";
    case Kind::print_end:
      return "}}";
    case Kind::string:
      return "a string";
    case Kind::end:
      return "the end of the template";
    default:
      return fmt::format("'{}'", text);
  }
}

std::vector<Token> tokenize(std::string_view source, const std::string& where) {
  require(is_valid_utf8(source), ErrorKind::data, "[{}] chat template: the text is not UTF-8", where);
  return Lexer(normalized(source), where).run();
}

void syntax_error(const std::string& where, int line, const std::string& what) {
  fail(ErrorKind::data, "[{}, line {}] chat template: {}", where, line, shortened(what, 400));
}

}  // namespace zeno::data::jinja
