#include "zeno/data/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "zeno/base/utf8.h"
#include "zeno/data/tokenizer/json_node.h"
#include "zeno/data/tokenizer/limits.h"
#include "zeno/data/tokenizer/unicode.h"

namespace zeno::data::tokenizer {
namespace {

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  return (begin == 0 || !is_word(decode_char_before(text, begin).code)) &&
         (end == text.size() || !is_word(decode_char(text, end).code));
}

}  // namespace

AddedToken AddedToken::read(const JsonNode& node) {
  AddedToken token;
  token.id = int32_t(node.at("id").integer(0, kMaxId));
  token.content = node.at("content").string_up_to(kMaxMatchedBytes);
  token.single_word = node.boolean_or("single_word", false);
  token.lstrip = node.boolean_or("lstrip", false);
  token.rstrip = node.boolean_or("rstrip", false);
  token.special = node.boolean_or("special", false);
  token.normalized = node.boolean_or("normalized", !token.special);
  return token;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Normalizer* normalizer)
    : tokens_(std::move(tokens)) {
  // Of equal texts the first counts, special ones before the others: those go into the trie last.
  std::stable_partition(tokens_.begin(), tokens_.end(),
                        [](const AddedToken& token) { return token.special; });
  size_t bytes = 0;
  for (const AddedToken& token : tokens_) bytes += token.content.size();
  Rewriting rewriting(bytes, false);
  for (size_t i = tokens_.size(); i-- > 0;) {
    const AddedToken& token = tokens_[i];
    if (token.content.empty()) continue;
    if (!token.normalized) {
      raw_.add(token.content, int32_t(i));
      continue;
    }
    AlignedText text({token.content}, rewriting);
    if (normalizer != nullptr && normalizer->changes(text.text)) normalizer->apply(text);
    if (text.text.empty()) continue;
    normalized_.add(text.text, int32_t(i));
    any_normalized_ = true;
  }
}

void AddedTokens::split(const ByteTrie& trie, std::string_view text, bool parse_special,
                        const Take& take) const {
  size_t done = 0;
  for (size_t at = trie.next_start(text, 0); at < text.size(); at = trie.next_start(text, at)) {
    const auto match = trie.longest(text, at);
    if (!match) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[size_t(match->value)];
    size_t begin = at, end = match->end;
    at = match->end;
    if (token.special && !parse_special) continue;
    if (token.single_word && !stands_alone(text, begin, end)) continue;
    if (token.lstrip) {
      while (begin > done && is_space(decode_char_before(text, begin).code)) {
        begin -= decode_char_before(text, begin).bytes;
      }
      begin = std::max(begin, done);
    }
    while (token.rstrip && end < text.size() && is_space(decode_char(text, end).code)) {
      end += decode_char(text, end).bytes;
    }
    if (done < begin) take(done, begin, nullptr);
    take(begin, end, &token);
    done = end;
  }
  if (done < text.size()) take(done, text.size(), nullptr);
}

}  // namespace zeno::data::tokenizer
