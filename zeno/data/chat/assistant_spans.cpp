#include "zeno/data/chat/assistant_spans.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "zeno/base/error.h"

namespace zeno::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSpace = " \n\r\t";

size_t common_prefix(std::string_view a, std::string_view b) {
  return size_t(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

bool is_blank(std::string_view text) { return text.find_first_not_of(kSpace) == text.npos; }

std::string_view without_space_behind(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

// The largest place up to `at` that is not inside a word or a mark such as <think>.
size_t whole_marks(std::string_view text, size_t at) {
  const auto is_border = [&](size_t i) {
    return i == 0 || i == text.size() || kSpace.find(text[i - 1]) != kSpace.npos || text[i - 1] == '>' ||
           text[i - 1] == ']' || text[i] == '<' || text[i] == '[';
  };
  while (!is_border(at)) --at;
  return at;
}

Json first_messages(const Json& messages, size_t count) {
  Json out = Json::array();
  for (size_t i = 0; i < count; ++i) out.push_back(messages[i]);
  return out;
}

// What the template writes behind the last words of a rendering.
std::string tail_of(const jinja::Rendered& rendered, const std::vector<Passage>& passages) {
  const auto last = std::find_if(passages.rbegin(), passages.rend(),
                                 [](const Passage& p) { return p.speaker != Speaker::writing; });
  return rendered.text.substr(last == passages.rend() ? 0 : last->end);
}

// Words of one message with nobody else's between them: passages [first, last].
struct Speech {
  size_t first = 0, last = 0, message = 0;
};

class Finder {
 public:
  Finder(const SpanSource& source, const Json& messages, const jinja::Rendered& rendered,
         const std::vector<Passage>& passages)
      : source_(source), messages_(messages), text_(rendered.text), passages_(passages) {}

  AssistantSpans run() {
    std::vector<bool> found(messages_.size(), false);
    for (const Speech& speech : speeches()) {
      add(span_of(speech, !found[speech.message]));
      found[speech.message] = true;
    }
    for (size_t i = 0; i < messages_.size(); ++i) {
      if (is_assistant(messages_[i]) && !found[i] && says_something(messages_[i])) unknown(i);
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void unknown(size_t i) const {
    fail(ErrorKind::data,
         "[{}] message {} (assistant): its words are not in the rendered conversation; use a template with "
         "{{% generation %}} around what the assistant says, or train on all tokens (--loss-on all)",
         source_.where, i + 1);
  }

  // Of calls and thoughts alone, the template may not write anything: there is nothing to train on then.
  static bool says_something(const Json& message) {
    const auto content = message.find("content");
    return content != message.end() && content->is_string() &&
           !is_blank(content->get_ref<const std::string&>());
  }

  // In the order of the text. A message without words of its own counts where the template was at it.
  std::vector<Speech> speeches() const {
    std::vector<Speech> out;
    for (size_t i = 0; i < passages_.size(); ++i) {
      const Passage& passage = passages_[i];
      if (passage.speaker == Speaker::other) continue;
      if (passage.speaker == Speaker::assistant) {
        const bool goes_on =
            !out.empty() && out.back().message == passage.message && is_writing(out.back().last + 1, i);
        if (goes_on) {
          out.back().last = i;
        } else {
          out.push_back({i, i, passage.message});
        }
      }
    }
    return out;
  }

  bool is_writing(size_t begin, size_t end) const {
    return std::all_of(passages_.begin() + std::ptrdiff_t(begin), passages_.begin() + std::ptrdiff_t(end),
                       [](const Passage& p) { return p.speaker == Speaker::writing; });
  }

  void add(const AssistantSpan& span) {
    const size_t begin = out_.spans.empty() ? span.begin : std::max(span.begin, out_.spans.back().end);
    if (begin < span.end) out_.spans.push_back({begin, span.end, span.message});
  }

  AssistantSpan span_of(const Speech& speech, bool opens) {
    const size_t begin = opens ? start(speech) : passages_[speech.first].begin;
    return {begin, end(speech), speech.message};
  }

  // ---- before the words ----

  // The template's text between the words before and those of this message.
  size_t lead_begin(size_t first) const {
    while (first > 0 && passages_[first - 1].speaker == Speaker::writing) --first;
    return passages_[first].begin;
  }

  size_t start(const Speech& speech) {
    const size_t words = passages_[speech.first].begin, begin = lead_begin(speech.first);
    if (begin == words) return words;
    const std::string lead = text_.substr(begin, words - begin);
    // The same text behind the same role has the same header: conversations stay linear in their turns.
    const std::string before = speech.message == 0 ? "" : messages_[speech.message - 1].value("role", "");
    const auto [known, is_new] = headers_.try_emplace({before, lead}, 0);
    if (is_new) known->second = header_size(speech.message, lead);
    return begin + known->second;
  }

  std::optional<std::string> tail(const Json& messages, bool prompt) const {
    try {
      const jinja::Rendered rendered = source_.render(messages, prompt);
      return tail_of(rendered, passages_of(rendered, messages));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
      return std::nullopt;
    }
  }

  // How much of `lead`, the text before the words of message i, is there before the model begins to write.
  size_t header_size(size_t i, const std::string& lead) const {
    const Json before = first_messages(messages_, i);
    const std::optional<std::string> prompt = tail(before, true);
    if (!prompt) return usual_header_size(i, lead);
    const size_t shared = common_prefix(*prompt, lead);
    if (shared == lead.size()) return shared;
    if (shared == prompt->size()) return source_.has_prompt ? shared : plain_header_size(i, lead, shared);
    // The prompt is written otherwise here, or not to its end (thoughts that this turn does not have).
    const std::optional<std::string> silent = tail(before, false);
    const size_t opened = silent ? common_prefix(*prompt, *silent) : 0;
    if (shared > opened) return whole_marks(lead, shared);
    return behind_prompt(i, lead, prompt->substr(opened));
  }

  size_t behind_prompt(size_t i, const std::string& lead, const std::string& added) const {
    const size_t at = added.empty() ? std::string::npos : lead.rfind(added);
    return at == std::string::npos ? plain_header_size(i, lead, 0) : at + added.size();
  }

  // For messages before which the template gives no prompt: with that of a plain question.
  size_t usual_header_size(size_t i, const std::string& lead) const {
    const Json question = Json::array({{{"role", "user"}, {"content", "x"}}});
    const std::optional<std::string> silent = tail(question, false), prompt = tail(question, true);
    if (!silent || !prompt) return plain_header_size(i, lead, 0);
    return behind_prompt(i, lead, prompt->substr(common_prefix(*prompt, *silent)));
  }

  // What stands before the words of any message of the assistant is its header. White space is not: where the
  // prompt ends without it, the model has to write it.
  size_t plain_header_size(size_t i, const std::string& lead, size_t prompt) const {
    Json messages = first_messages(messages_, i);
    messages.push_back({{"role", "assistant"}, {"content", "x"}});
    try {
      const jinja::Rendered rendered = source_.render(messages, false);
      const std::vector<Passage> passages = passages_of(rendered, messages);
      for (size_t at = passages.size(); at-- > 0;) {
        if (passages[at].speaker != Speaker::assistant || passages[at].message != i) continue;
        size_t first = at;
        while (first > 0 && passages[first - 1].speaker == Speaker::writing) --first;
        const size_t begin = passages[first].begin;
        const std::string header = rendered.text.substr(begin, passages[at].begin - begin);
        if (is_blank(std::string_view(header).substr(std::min(prompt, header.size())))) return prompt;
        return std::max(prompt, whole_marks(lead, common_prefix(header, lead)));
      }
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
    }
    return lead.size();
  }

  // ---- behind the words ----

  size_t end(const Speech& speech) {
    const size_t words = passages_[speech.last].end;
    size_t after = speech.last + 1, own = words;  // what is written while the template is at the message
    for (; after < passages_.size() && passages_[after].speaker == Speaker::writing; ++after) {
      if (passages_[after].frame == speech.message && own == passages_[after].begin)
        own = passages_[after].end;
    }
    const size_t next = after == passages_.size() ? text_.size() : passages_[after].begin;
    const std::string_view text = text_;
    const std::string_view closing = text.substr(words, own - words), rest = text.substr(own, next - own);
    if (!is_blank(closing)) return words + closing_size(closing, rest);
    return words + later_end(speech.message, text.substr(words, next - words));
  }

  // Up to eos where it is written, here or at the end of the conversation; else without the space behind it.
  size_t closing_size(std::string_view closing, std::string_view rest) const {
    const std::string_view eos = source_.eos;
    if (!eos.empty()) {
      if (const size_t at = closing.find(eos); at != closing.npos) return at + eos.size();
      if (rest.starts_with(eos)) return closing.size() + eos.size();
    }
    return without_space_behind(closing).size();
  }

  // Some templates end a turn when they come to the next, or behind all of them.
  size_t later_end(size_t i, std::string_view behind) {
    const std::string_view eos = source_.eos;
    const size_t space = std::min(behind.find_first_not_of(kSpace), behind.size());
    if (!eos.empty() && behind.substr(space).starts_with(eos)) return space + eos.size();
    const std::optional<std::string> last = tail(first_messages(messages_, i + 1), false);
    const size_t shared = last ? whole_marks(behind, common_prefix(*last, behind)) : 0;
    const std::string_view end = without_space_behind(behind.substr(0, shared));
    if (end.empty()) out_.ends = false;
    return end.size();
  }

  const SpanSource& source_;
  const Json& messages_;
  const std::string& text_;
  const std::vector<Passage>& passages_;
  std::map<std::pair<std::string, std::string>, size_t> headers_;
  AssistantSpans out_;
};

}  // namespace

AssistantSpans find_assistant_spans(const SpanSource& source, const Json& messages,
                                    const jinja::Rendered& rendered, const std::vector<Passage>& passages) {
  return Finder(source, messages, rendered, passages).run();
}

std::vector<AssistantSpan> marked_spans(const std::vector<TextSpan>& marked,
                                        const std::vector<Passage>& passages) {
  std::vector<AssistantSpan> out;
  for (const TextSpan& mark : marked) {
    size_t message = kNoMessage;
    const size_t first = out.size();
    for (const Passage& passage : passages) {
      const size_t begin = std::max(passage.begin, mark.begin), end = std::min(passage.end, mark.end);
      if (passage.end < mark.begin || begin > end || passage.begin > mark.end) continue;
      if (passage.speaker == Speaker::assistant && begin >= mark.begin) message = passage.message;
      if (message == kNoMessage && begin < end) message = passage.frame;
      if (begin == end || passage.speaker == Speaker::other) continue;
      const bool goes_on = out.size() > first && out.back().end == begin;
      if (goes_on) {
        out.back().end = end;
      } else {
        out.push_back({begin, end, 0});
      }
    }
    for (size_t i = first; i < out.size(); ++i) out[i].message = message;
  }
  return out;
}

bool writes_generation_prompt(const SpanSource& source) {
  const Json question = Json::array({{{"role", "user"}, {"content", "x"}}});
  try {
    return source.render(question, true).text != source.render(question, false).text;
  } catch (const Error&) {
    return true;
  }
}

}  // namespace zeno::data
