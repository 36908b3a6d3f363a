#define PCRE2_CODE_UNIT_WIDTH 8
#include "zeno/data/tokenizer/regex.h"

#include <pcre2.h>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"

namespace zeno::data::tokenizer {
namespace {

// Oniguruma's \s is White_Space and its \w is Alphabetic, marks, decimal digits, connectors and the
// superscripts and fractions of Latin-1; PCRE2 10.42 differs in both. These are the insides of a set.
constexpr std::string_view kSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpace =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view where) : pattern_(pattern), where_(where) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape();
      } else if (in_set_) {
        set_char(c);
      } else {
        if (c == '(') check_group();
        copy();
        if (c == '[') open_set();
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    fail(ErrorKind::data,
         "[tokenizer] {}: regex '{}': {} is not supported; expected what PCRE2 and Oniguruma share", where_,
         shortened(pattern_, 60), what);
  }
  void copy() { out_ += pattern_[at_++]; }

  void open_set() {
    in_set_ = true;
    if (at_ < pattern_.size() && pattern_[at_] == '^') copy();
    if (at_ < pattern_.size() && pattern_[at_] == ']') refuse("']' as the first character of a set");
  }

  void set_char(char c) {
    if (c == '[') refuse("a set inside a set");
    if (c == '&' && at_ + 1 < pattern_.size() && pattern_[at_ + 1] == '&') refuse("'&&' in a set");
    if (c == ']') in_set_ = false;
    copy();
  }

  // Groups that both engines read alike: plain, (?: (?= (?! (?<= (?<! (?> (?i (?i: (?-i:
  void check_group() const {
    const std::string_view rest = pattern_.substr(at_ + 1);
    if (rest.starts_with('*')) refuse("a verb");
    if (!rest.starts_with('?')) return;
    for (const std::string_view kind : {"?:", "?=", "?!", "?<=", "?<!", "?>", "?i)", "?i:", "?-i:", "?-i)"}) {
      if (rest.starts_with(kind)) return;
    }
    refuse(fmt::format("the group '({}'", rest.substr(0, 2)));
  }

  void escape() {
    if (at_ + 1 >= pattern_.size()) refuse("a lone backslash at the end");
    const char c = pattern_[at_ + 1];
    at_ += 2;
    switch (c) {
      case 's':
        return put_set(kSpace, false);
      case 'S':
        return in_set_ ? put_set(kNotSpace, false) : put_set(kSpace, true);
      case 'w':
        return put_set(kWord, false);
      case 'W':
        if (in_set_) refuse("\\W in a set");
        return put_set(kWord, true);
      case 'v':
        out_ += "\\x{b}";
        return;
      case 'u':
        return code_point();
      case 'd':
      case 'D':
      case 'p':
      case 'P':
      case 'r':
      case 'n':
      case 't':
      case 'f':
      case 'x':
        break;
      case 'b':
      case 'B':
      case 'A':
      case 'z':
        if (in_set_) refuse(fmt::format("\\{} in a set", c));
        break;
      default:
        if (isalnum(uint8_t(c))) refuse(fmt::format("\\{}", c));
    }
    out_ += '\\';
    out_ += c;
  }

  void put_set(std::string_view inside, bool negated) {
    if (in_set_)
      out_ += inside;
    else
      out_ += fmt::format("[{}{}]", negated ? "^" : "", inside);
  }

  void code_point() {  // \uHHHH
    if (at_ + 4 > pattern_.size()) refuse("a cut \\u");
    for (size_t i = 0; i < 4; ++i) {
      if (!isxdigit(uint8_t(pattern_[at_ + i]))) refuse("a cut \\u");
    }
    out_ += fmt::format("\\x{{{}}}", pattern_.substr(at_, 4));
    at_ += 4;
  }

  std::string_view pattern_, where_;
  size_t at_ = 0;
  bool in_set_ = false;
  std::string out_;
};

// What a thread needs to match: room for one pair of offsets and a stack for compiled patterns.
struct MatchRoom {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, 8 << 20, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  MatchRoom() { pcre2_jit_stack_assign(context, nullptr, stack); }
  MatchRoom(const MatchRoom&) = delete;
  MatchRoom& operator=(const MatchRoom&) = delete;
  ~MatchRoom() {
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
    pcre2_match_data_free(data);
  }
};

std::string message_of(int code) {
  char buffer[256];
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(buffer), sizeof buffer);
  return buffer;
}

}  // namespace

Regex Regex::translate(std::string_view pattern, std::string_view where) {
  return compile(Translator(pattern, where).run(), pattern, where);
}

Regex Regex::native(std::string_view pattern) { return compile(std::string(pattern), pattern, "built in"); }

Regex Regex::compile(const std::string& pattern, std::string_view shown, std::string_view where) {
  int error = 0;
  size_t place = 0;
  // Oniguruma's ^ and $ hold at every line.
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &place, nullptr);
  require(code != nullptr, ErrorKind::data, "[tokenizer] {}: regex '{}': {}", where, shortened(shown, 60),
          message_of(error));
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without a JIT the interpreter gives the same matches
  Regex regex;
  regex.code_ = std::shared_ptr<const pcre2_real_code_8>(
      code, [](const pcre2_real_code_8* owned) { pcre2_code_free(const_cast<pcre2_real_code_8*>(owned)); });
  return regex;
}

std::optional<TextSpan> Regex::find(std::string_view text, size_t from) const {
  thread_local const MatchRoom room;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int result =
      pcre2_match(code_.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, room.data, room.context);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
    result = pcre2_match(code_.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         room.data, room.context);
  }
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  require(result >= 0, ErrorKind::data,
          "[tokenizer] a regex of the tokenizer gave up on a text of {} bytes: {}", text.size(),
          message_of(result));
  const size_t* offsets = pcre2_get_ovector_pointer(room.data);
  return TextSpan{offsets[0], offsets[1]};
}

}  // namespace zeno::data::tokenizer
