// What Replace and Split look for: a text or a regex. Immutable; safe from any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <variant>

#include "zeno/data/text_span.h"
#include "zeno/data/tokenizer/regex.h"

namespace zeno::data::tokenizer {

class JsonNode;

class Pattern {
 public:
  explicit Pattern(std::string text) : what_(std::move(text)) {}
  explicit Pattern(Regex regex) : what_(std::move(regex)) {}
  // {"String": …} or {"Regex": …}, or just a text.
  static Pattern read(const JsonNode& node);

  // The text of the regex, or empty: splitters written by hand know theirs by it.
  const std::string& source() const { return source_; }
  // Matches from left to right, none inside another. An empty text never matches.
  void for_each_match(std::string_view text, const std::function<void(TextSpan)>& take) const;

 private:
  std::variant<std::string, Regex> what_;
  std::string source_;
};

}  // namespace zeno::data::tokenizer
