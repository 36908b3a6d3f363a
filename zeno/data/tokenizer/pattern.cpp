#include "zeno/data/tokenizer/pattern.h"

#include "zeno/base/utf8.h"
#include "zeno/data/tokenizer/json_node.h"

namespace zeno::data::tokenizer {

Pattern Pattern::read(const JsonNode& node) {
  if (node.is_string()) return Pattern(node.string());
  if (const auto text = node.find("String")) return Pattern(text->string());
  const JsonNode regex = node.at("Regex");
  Pattern pattern(Regex::translate(regex.string(), regex.where()));
  pattern.source_ = regex.string();
  return pattern;
}

void Pattern::for_each_match(std::string_view text, const std::function<void(TextSpan)>& take) const {
  if (const auto* word = std::get_if<std::string>(&what_)) {
    if (word->empty()) return;
    for (size_t at = 0; (at = text.find(*word, at)) != std::string_view::npos; at += word->size()) {
      take({at, at + word->size()});
    }
    return;
  }
  const Regex& regex = std::get<Regex>(what_);
  size_t last = size_t(-1);  // an empty match right behind a match is none
  for (size_t at = 0; at <= text.size() && !text.empty();) {
    const auto match = regex.find(text, at);
    if (!match) return;
    if (match->begin == match->end) {
      if (match->begin != last) take(*match);
      if (match->end >= text.size()) return;
      at = match->end + decode_char(text, match->end).bytes;
      continue;
    }
    take(*match);
    at = last = match->end;
  }
}

}  // namespace zeno::data::tokenizer
