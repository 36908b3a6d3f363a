#include "zeno/data/chat/assistant_spans.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "zeno/base/error.h"

namespace zeno::data {
namespace {

using Json = nlohmann::ordered_json;

// Words that no conversation has, and whose ends are no white space and no part of a mark.
constexpr std::string_view kOtherWords = "\u2402zeno\u2403";

size_t common_prefix(std::string_view a, std::string_view b) {
  return size_t(
      std::mismatch(a.begin(), a.begin() + std::ptrdiff_t(std::min(a.size(), b.size())), b.begin()).first -
      a.begin());
}

size_t common_suffix(std::string_view a, std::string_view b) {
  size_t size = 0;
  while (size < std::min(a.size(), b.size()) && a[a.size() - 1 - size] == b[b.size() - 1 - size]) ++size;
  return size;
}

// For every prefix of `text`: how long an ending it shares with `pattern`. Linear in both (the Z function of
// the reversed strings).
std::vector<size_t> shared_endings(std::string_view text, std::string_view pattern) {
  std::string joined(pattern.rbegin(), pattern.rend());
  const size_t offset = joined.size();
  joined.append(text.rbegin(), text.rend());
  std::vector<size_t> z(joined.size() + 1, 0);
  for (size_t i = 1, left = 0, right = 0; i < joined.size(); ++i) {
    if (i < right) z[i] = std::min(right - i, z[i - left]);
    while (i + z[i] < joined.size() && joined[z[i]] == joined[i + z[i]]) ++z[i];
    if (i + z[i] > right) left = i, right = i + z[i];
  }
  std::vector<size_t> out(text.size() + 1, 0);
  for (size_t end = 1; end <= text.size(); ++end)
    out[end] = std::min(z[offset + text.size() - end], pattern.size());
  return out;
}

bool is_inside_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

bool is_assistant(const Json& message) {
  return message.is_object() && message.contains("role") && message["role"] == "assistant";
}

// The words of a message: its texts, its reasoning, the names of the functions it calls.
void replace_words(Json& message) {
  const std::string other(kOtherWords);
  for (const char* field : {"content", "reasoning_content", "thinking", "reasoning"}) {
    const auto entry = message.find(field);
    if (entry == message.end()) continue;
    if (entry->is_string()) *entry = other;
    if (!entry->is_array()) continue;
    for (Json& part : *entry) {
      if (part.is_object() && part.contains("text") && part["text"].is_string()) part["text"] = other;
    }
  }
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return;
  for (Json& call : *calls) {
    Json& function = call.is_object() && call.contains("function") ? call["function"] : call;
    if (function.is_object() && function.contains("name")) function["name"] = other;
  }
}

Json first_messages(const Json& messages, size_t count) {
  Json out = Json::array();
  for (size_t i = 0; i < count; ++i) out.push_back(messages[i]);
  return out;
}

class Finder {
 public:
  Finder(const SpanSource& source, const Json& messages, const std::string& text)
      : source_(source), messages_(messages), text_(text) {}

  std::vector<TextSpan> run() {
    for (size_t i = 0; i < messages_.size(); ++i) {
      if (!is_assistant(messages_[i])) continue;
      TextSpan span = span_of(i);
      span.end = without_space_behind_turn_end(span);
      cursor_ = span.end;
      if (span.begin < span.end) spans_.push_back(span);
    }
    return std::move(spans_);
  }

 private:
  [[noreturn]] void unknown(size_t i, const char* why) const {
    fail(ErrorKind::data,
         "[{}] message {} (assistant): its place in the rendered conversation cannot be told ({}); use a "
         "template with "
         "{{% generation %}} around what the assistant says, or train on all tokens (--loss-on all)",
         source_.where, i + 1, why);
  }

  std::optional<std::string> try_render(const Json& messages, bool prompt) const {
    try {
      return source_.render(messages, prompt);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
      return std::nullopt;
    }
  }

  TextSpan span_of(size_t i) {
    const Json before = first_messages(messages_, i), with = first_messages(messages_, i + 1);
    const std::optional<std::string> prompt = try_render(before, true), turn = try_render(with, false);
    const bool plain =
        prompt && turn && turn->starts_with(*prompt) && text_.starts_with(*turn) && prompt->size() >= cursor_;
    if (plain) return {prompt->size(), turn->size()};
    return search(i, before, with, prompt, turn);
  }

  // The bytes of `full` that depend on the words of message i of `messages`.
  std::optional<TextSpan> words(const Json& messages, size_t i, std::string_view full, bool prompt) const {
    Json other = messages;
    replace_words(other[i]);
    const std::optional<std::string> changed = try_render(other, prompt);
    if (!changed || *changed == full) return std::nullopt;
    size_t begin = common_prefix(full, *changed);
    const size_t rest = std::min(full.size(), changed->size()) - begin;
    size_t end = full.size() - std::min(rest, common_suffix(full, *changed));
    // Two characters may share bytes: the borders are those of whole ones.
    while (begin > 0 && begin < full.size() && is_inside_character(full[begin])) --begin;
    while (end < full.size() && is_inside_character(full[end])) ++end;
    return TextSpan{begin, end};
  }

  TextSpan search(size_t i, const Json& before, const Json& with, const std::optional<std::string>& prompt,
                  const std::optional<std::string>& turn) {
    // Whether the whole text was rendered with a generation prompt does not matter for where the words are.
    std::optional<TextSpan> found = words(messages_, i, text_, text_prompt());
    if (!found) unknown(i, "other words in it change nothing");
    TextSpan span = *found;
    if (span.begin < cursor_) unknown(i, "it is mixed with an earlier turn");
    span.begin = start(i, before, prompt, span.begin);
    if (!turn) unknown(i, "the template refuses a conversation that ends with it");
    const std::optional<TextSpan> own = words(with, i, *turn, false);
    if (!own) unknown(i, "other words in it change nothing");
    span.end +=
        shared_tail(i, std::string_view(*turn).substr(own->end), std::string_view(text_).substr(span.end));
    return span;
  }

  bool text_prompt() {
    if (!with_prompt_) with_prompt_ = source_.render(messages_, false) != text_;
    return *with_prompt_;
  }

  // Behind the text before the message, and behind as much of the generation prompt as is there.
  size_t start(size_t i, const Json& before, const std::optional<std::string>& prompt,
               size_t words_begin) const {
    const std::optional<std::string> silent = try_render(before, false);
    const std::string_view room = std::string_view(text_).substr(0, words_begin);
    if (!silent || !prompt) {
      // The template does not render what is before (nothing, perhaps): the prompt of another conversation
      // does.
      const std::optional<std::string> usual = usual_prompt();
      const size_t at = usual ? room.rfind(*usual) : std::string::npos;
      if (at == std::string::npos || at < cursor_) unknown(i, "the template refuses the messages before it");
      return at + usual->size();
    }
    const size_t shared = common_prefix(*prompt, *silent);
    const std::string_view preceding = std::string_view(*prompt).substr(0, shared);
    const std::string_view added = std::string_view(*prompt).substr(shared);
    if (preceding.empty()) {
      const size_t at = added.empty() ? std::string::npos : room.rfind(added);
      return at == std::string::npos || at < cursor_ ? words_begin : at + added.size();
    }
    const std::vector<size_t> endings = shared_endings(room, preceding);
    size_t best = cursor_;
    for (size_t end = cursor_; end <= room.size(); ++end) {
      if (endings[end] >= endings[best]) best = end;
    }
    if (endings[best] == 0) unknown(i, "the text before it is not found");
    return best + common_prefix(added, room.substr(best));
  }

  // Empty for a template that has none.
  std::optional<std::string> usual_prompt() const {
    const Json question = Json::array({{{"role", "user"}, {"content", "x"}}});
    const std::optional<std::string> silent = try_render(question, false),
                                     prompt = try_render(question, true);
    if (!silent || !prompt) return std::nullopt;
    return prompt->substr(common_prefix(*prompt, *silent));
  }

  // How much of `tail`, which ends the message's own rendering, follows its words in the whole text. Never
  // half a token: all of it, none, or up to the end of a turn.
  size_t shared_tail(size_t i, std::string_view tail, std::string_view rest) const {
    const size_t shared = common_prefix(tail, rest);
    if (shared == tail.size() || shared == 0) return shared;
    for (const std::string& end : source_.turn_ends) {
      const size_t at = tail.substr(0, shared).rfind(end);
      if (at != std::string_view::npos) return at + end.size();
    }
    unknown(i, "its end is written differently when more follows");
  }

  // A newline that the template writes behind the end-of-turn token is not said by the assistant.
  size_t without_space_behind_turn_end(const TextSpan& span) const {
    size_t end = span.end;
    while (end > span.begin && (text_[end - 1] == '\n' || text_[end - 1] == ' ')) --end;
    const std::string_view said = std::string_view(text_).substr(span.begin, end - span.begin);
    for (const std::string& turn_end : source_.turn_ends) {
      if (said.ends_with(turn_end)) return end;
    }
    return span.end;
  }

  const SpanSource& source_;
  const Json& messages_;
  const std::string& text_;
  size_t cursor_ = 0;  // the end of the last assistant's turn
  std::optional<bool> with_prompt_;
  std::vector<TextSpan> spans_;
};

}  // namespace

std::vector<TextSpan> find_assistant_spans(const SpanSource& source, const Json& messages,
                                           const std::string& text) {
  return Finder(source, messages, text).run();
}

std::string probe_turn_end(const SpanSource& source) {
  const Json chat =
      Json::array({{{"role", "user"}, {"content", "x"}}, {{"role", "assistant"}, {"content", kOtherWords}}});
  try {
    const std::string text = source.render(chat, false);
    const size_t at = text.rfind(kOtherWords);
    if (at == text.npos) return {};
    // The first of what may be several marks with white space between them.
    const std::string_view space = " \n\r\t", behind = std::string_view(text).substr(at + kOtherWords.size());
    const size_t begin = std::min(behind.find_first_not_of(space), behind.size());
    return std::string(behind.substr(begin, behind.find_first_of(space, begin) - begin));
  } catch (const Error&) {
    return {};
  }
}

}  // namespace zeno::data
