// A regular expression of a tokenizer file, run by PCRE2 over UTF-8 with Unicode classes. The files are
// written for Oniguruma; where the two differ (\s, \w, \h, nested sets …) the pattern is translated, or
// refused by name. A value that shares the compiled code; safe from any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "zeno/data/text_span.h"

struct pcre2_real_code_8;

namespace zeno::data::tokenizer {

class Regex {
 public:
  // `where` names the place in the file for errors.
  static Regex translate(std::string_view pattern, std::string_view where);
  // A pattern of ours, in PCRE2's own syntax.
  static Regex native(std::string_view pattern);

  // The first match at or after `from`. The text must be valid UTF-8.
  std::optional<TextSpan> find(std::string_view text, size_t from) const;

 private:
  static Regex compile(const std::string& pattern, std::string_view shown, std::string_view where);
  std::shared_ptr<const pcre2_real_code_8> code_;  // shared: copies of a Tokenizer use one compiled pattern
};

}  // namespace zeno::data::tokenizer
