// Template text to tokens, with the white space rules of chat templates: trim_blocks and lstrip_blocks are
// on, one newline at the very end is dropped, `-` and `+` inside the marks override. Errors are
// zeno::Error(data) with template and line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zeno::data::jinja {

struct Token {
  enum class Kind : uint8_t {
    data,
    block_begin,
    block_end,
    print_begin,
    print_end,
    name,
    string,
    integer,
    real,
    sign,
    end
  };
  Kind kind = Kind::end;
  int line = 1;
  std::string text;  // data, name, string: its contents; sign: itself
  int64_t integer = 0;
  double real = 0;

  bool is_sign(std::string_view wanted) const { return kind == Kind::sign && text == wanted; }
  bool is_name(std::string_view wanted) const { return kind == Kind::name && text == wanted; }
  // For error messages.
  std::string describe() const;
};

// The last token is of kind end.
std::vector<Token> tokenize(std::string_view source, const std::string& where);

[[noreturn]] void syntax_error(const std::string& where, int line, const std::string& what);

}  // namespace zeno::data::jinja
