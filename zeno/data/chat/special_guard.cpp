#include "zeno/data/chat/special_guard.h"

#include <algorithm>
#include <string_view>

namespace zeno::data {

SpecialGuard::SpecialGuard(const Tokenizer& tokenizer) {
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_special(int32_t(id))) continue;
    const auto token = int32_t(id);
    const std::string text = tokenizer.decode({&token, 1});
    // A text of one character cannot be cut.
    if (text.size() > 1) by_first_byte_[static_cast<unsigned char>(text[0])].push_back(text);
    longest_ = std::max(longest_, text.size());
  }
}

std::vector<size_t> SpecialGuard::cuts(const RenderedChat& chat) const {
  std::vector<size_t> out;
  for (const TextSpan& words : chat.others) {
    // A special token may begin before the words.
    for (size_t i = words.begin - std::min(words.begin, longest_); i < words.end; ++i) {
      const auto& candidates = by_first_byte_[static_cast<unsigned char>(chat.text[i])];
      const auto is_here = [&](const std::string& special) {
        return i + special.size() > words.begin && chat.text.compare(i, special.size(), special) == 0;
      };
      if (std::ranges::none_of(candidates, is_here)) continue;
      size_t cut = i + 1;
      while (cut < chat.text.size() && (static_cast<unsigned char>(chat.text[cut]) & 0xc0) == 0x80) ++cut;
      out.push_back(cut);
    }
    for (const AssistantSpan& span : chat.assistant) {
      if (span.begin == words.end) out.push_back(span.begin);
      if (span.end == words.begin) out.push_back(span.end);
    }
  }
  std::ranges::sort(out);
  out.erase(std::ranges::unique(out).begin(), out.end());
  return out;
}

void for_each_token_in_pieces(const Tokenizer& tokenizer, std::string_view text,
                              const std::vector<size_t>& cuts, const TakeToken& take) {
  constexpr EncodeOptions kOptions{.add_special = false, .parse_special = true};
  size_t begin = 0;
  const TakeToken take_moved = [&](int32_t id, TextSpan span) {
    take(id, {span.begin + begin, span.end + begin});
  };
  for (size_t i = 0; i <= cuts.size(); ++i) {
    const size_t end = i == cuts.size() ? text.size() : cuts[i];
    tokenizer.for_each_token(text.substr(begin, end - begin), kOptions, take_moved);
    begin = end;
  }
}

}  // namespace zeno::data
