#include "zeno/data/dataset/special_guard.h"

#include <algorithm>

namespace zeno::data {
namespace {

constexpr std::string_view kMark = "\xef\xb7\x90";  // U+FDD0, which Unicode keeps for such uses

}  // namespace

SpecialGuard::SpecialGuard(const Tokenizer& tokenizer) {
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_special(int32_t(id))) continue;
    const auto token = int32_t(id);
    const std::string text = tokenizer.decode({&token, 1});
    // A text of one character cannot be cut.
    if (text.size() > 1) by_first_byte_[static_cast<unsigned char>(text[0])].push_back(text);
  }
}

bool SpecialGuard::protect(nlohmann::ordered_json& messages) const {
  bool found = false;
  for (auto& message : messages) {
    const auto content = message.find("content");
    if (message["role"] == "assistant" || content == message.end() || !content->is_string()) continue;
    found = protect_text(content->get_ref<std::string&>()) || found;
  }
  return found;
}

bool SpecialGuard::protect_text(std::string& text) const {
  std::string marked;
  size_t done = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto& candidates = by_first_byte_[static_cast<unsigned char>(text[i])];
    const auto is_here = [&](const std::string& special) {
      return text.compare(i, special.size(), special) == 0;
    };
    if (std::ranges::none_of(candidates, is_here)) continue;
    size_t cut = i + 1;
    while (cut < text.size() && (static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80) ++cut;
    marked.append(text, done, cut - done).append(kMark);
    done = cut;
  }
  if (done == 0) return false;
  marked.append(text, done);
  text = std::move(marked);
  return true;
}

GuardedChat SpecialGuard::remove(std::string_view text, const std::vector<TextSpan>& assistant) {
  GuardedChat out{.text = {}, .assistant = assistant, .cuts = {}};
  std::vector<size_t> places;  // of marks, in the text as it came
  size_t from = 0;
  for (size_t at; (at = text.find(kMark, from)) != std::string_view::npos; from = at + kMark.size()) {
    out.text.append(text, from, at - from);
    out.cuts.push_back(out.text.size());
    places.push_back(at);
  }
  out.text.append(text, from);
  const auto moved = [&](size_t at) {
    const auto before = std::ranges::lower_bound(places, at) - places.begin();
    return at - size_t(before) * kMark.size();
  };
  for (TextSpan& span : out.assistant) span = {moved(span.begin), moved(span.end)};
  return out;
}

Encoding encode_guarded(const Tokenizer& tokenizer, const GuardedChat& chat) {
  constexpr EncodeOptions kOptions{.add_special = false, .parse_special = true};
  if (chat.cuts.empty()) return tokenizer.encode_with_spans(chat.text, kOptions);
  Encoding all;
  size_t begin = 0;
  for (size_t i = 0; i <= chat.cuts.size(); ++i) {
    const size_t end = i == chat.cuts.size() ? chat.text.size() : chat.cuts[i];
    const Encoding piece =
        tokenizer.encode_with_spans(std::string_view(chat.text).substr(begin, end - begin), kOptions);
    all.ids.insert(all.ids.end(), piece.ids.begin(), piece.ids.end());
    for (const TextSpan& span : piece.spans) all.spans.push_back({span.begin + begin, span.end + begin});
    begin = end;
  }
  return all;
}

}  // namespace zeno::data
