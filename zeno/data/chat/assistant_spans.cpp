#include "zeno/data/chat/assistant_spans.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "zeno/base/error.h"
#include "zeno/data/chat/marks.h"
#include "zeno/data/chat/speech.h"

namespace zeno::data {
namespace {

using Json = nlohmann::ordered_json;

using Messages = jinja::JsonList;

Messages first_messages(const Messages& messages, size_t count) {
  return {messages.begin(), messages.begin() + std::ptrdiff_t(count)};
}

class Finder {
 public:
  Finder(const SpanSource& source, const Messages& messages, const jinja::Rendered& rendered,
         const std::vector<Passage>& passages)
      : source_(source), messages_(messages), text_(rendered.text), passages_(passages) {}

  AssistantSpans run() {
    std::vector<bool> found(messages_.size(), false);
    for (const Speech& speech : speeches_of(passages_)) {
      add(span_of(speech, !found[speech.message]));
      found[speech.message] = true;
    }
    for (size_t i = 0; i < messages_.size(); ++i) {
      if (is_assistant(*messages_[i]) && !found[i] && says_something(*messages_[i])) unknown(i);
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void unknown(size_t i) const {
    fail(ErrorKind::data,
         "[{}] message {} (assistant): its text is not in the rendered conversation; use a template with {{% "
         "generation %}} around the assistant's text, or train on all tokens (--loss-on all)",
         source_.where, i + 1);
  }

  // Of calls and thoughts alone, the template may not write anything: there is nothing to train on then.
  static bool says_something(const Json& message) {
    const auto content = message.find("content");
    return content != message.end() && content->is_string() &&
           !is_blank(content->get_ref<const std::string&>());
  }

  void add(const AssistantSpan& span) {
    const size_t begin = out_.spans.empty() ? span.begin : std::max(span.begin, out_.spans.back().end);
    if (begin < span.end) out_.spans.push_back({begin, span.end, span.message});
  }

  AssistantSpan span_of(const Speech& speech, bool opens) {
    const size_t begin = opens ? start(speech) : passages_[speech.first].begin;
    return {begin, end(speech), speech.message};
  }

  // A rendering of other messages, which the template may refuse.
  struct Other {
    jinja::Rendered rendered;
    std::vector<Passage> passages;
  };
  std::optional<Other> render(const Messages& messages, bool prompt) const {
    try {
      Other out{source_.render(messages, prompt), {}};
      out.passages = passages_of(out.rendered, messages);
      return out;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
      return std::nullopt;
    }
  }

  // ---- before the words ----

  size_t start(const Speech& speech) {
    const size_t words = passages_[speech.first].begin, begin = lead_begin(passages_, speech.first);
    if (begin == words) return words;
    return std::max(begin + header(speech, begin), earlier_writing_end(speech));
  }

  // Nothing that the template wrote at an earlier message belongs to this one.
  size_t earlier_writing_end(const Speech& speech) const {
    size_t at = speech.first;
    for (; at > 0 && passages_[at - 1].speaker == Speaker::writing; --at) {
      const size_t frame = passages_[at - 1].frame;
      if (frame != kNoMessage && frame != speech.message) break;
    }
    return passages_[at].begin;
  }

  size_t header(const Speech& speech, size_t begin) {
    const size_t words = passages_[speech.first].begin;
    const std::string lead = text_.substr(begin, words - begin);
    // The same text behind the same role has the same header: conversations stay linear in their turns.
    const std::string before = speech.message == 0 ? "" : messages_[speech.message - 1]->value("role", "");
    const auto [known, is_new] = headers_.try_emplace({before, lead}, 0);
    if (is_new) known->second = header_size(speech.message, lead);
    return known->second;
  }

  // How much of `lead`, the text before the words of message i, is there before the model begins to write.
  size_t header_size(size_t i, const std::string& lead) const {
    const Messages before = first_messages(messages_, i);
    const std::optional<Other> prompted = i == 0 ? std::nullopt : render(before, true);
    if (!prompted) return behind_prompt(i, lead, std::nullopt, source_.prompt);
    const std::string prompt = tail_of(prompted->rendered, prompted->passages);
    if (lead.starts_with(prompt)) return behind_prompt(i, lead, prompt.size(), source_.prompt);
    const size_t shared = common_beginning(prompt, lead);
    if (shared == lead.size()) return shared;
    // The prompt is written otherwise here, or not to its end (thoughts that this turn does not have).
    const std::optional<Other> silent = render(before, false);
    const size_t opened =
        silent ? common_beginning(prompt, tail_of(silent->rendered, silent->passages)) : prompt.size();
    if (shared > opened && !is_blank(std::string_view(lead).substr(opened, shared - opened))) return shared;
    return behind_prompt(i, lead, std::nullopt, prompt.substr(opened));
  }

  // Behind a prompt that stands somewhere in the lead. `from`: where the model's prompt ends otherwise, as
  // far as it is known.
  size_t behind_prompt(size_t i, const std::string& lead, std::optional<size_t> from,
                       std::string_view prompt) const {
    if (is_blank(prompt)) return plain_header_size(i, lead, from);
    const std::string_view mark = trimmed(prompt);
    const size_t at = lead.rfind(mark);
    if (at == lead.npos || at < from.value_or(0)) {
      return from.value_or(0) > 0 ? *from : plain_header_size(i, lead, from);
    }
    const std::string_view space = prompt.substr(size_t(mark.data() - prompt.data()) + mark.size());
    const size_t end = at + mark.size();
    return end + common_beginning(space, std::string_view(lead).substr(end));
  }

  // What stands before the words of any message of the assistant is its header. White space is not: where the
  // prompt ends without it, the model has to write it.
  size_t plain_header_size(size_t i, const std::string& lead, std::optional<size_t> from) const {
    const Json answer = {{"role", "assistant"}, {"content", "x"}};
    Messages messages = first_messages(messages_, i);
    messages.push_back(&answer);
    const std::optional<Other> plain = render(messages, false);
    if (!plain) return lead.size();
    for (const Speech& speech : speeches_of(plain->passages)) {
      if (speech.message != i) continue;
      const size_t begin = lead_begin(plain->passages, speech.first);
      const std::string header =
          plain->rendered.text.substr(begin, plain->passages[speech.first].begin - begin);
      const size_t common = common_beginning(lead, header);
      if (!from) return common > 0 ? common : lead.size();
      const std::string_view rest = std::string_view(header).substr(std::min(*from, header.size()));
      return is_blank(rest) ? *from : std::max(*from, common);
    }
    return lead.size();
  }

  // ---- behind the words ----

  size_t end(const Speech& speech) {
    const size_t words = passages_[speech.last].end;
    size_t next = speech.last + 1, own = words;  // what is written while the template is at the message
    for (; next < passages_.size() && passages_[next].speaker == Speaker::writing; ++next) {
      if (passages_[next].frame == speech.message && own == passages_[next].begin) own = passages_[next].end;
    }
    const Passage* follower = next == passages_.size() ? nullptr : &passages_[next];
    const size_t follows = follower ? follower->begin : text_.size();
    if (follower && follower->frame == speech.message && follower->speaker == Speaker::other) {
      return end_before_quote(speech);
    }
    const std::string_view behind = std::string_view(text_).substr(words, follows - words);
    const std::string_view closing = behind.substr(0, own - words);
    const size_t size = is_blank(closing) ? known_later_end(speech.message, behind, follower)
                                          : closing_size(closing, behind.substr(closing.size()));
    const bool goes_on = follower && follower->speaker == Speaker::assistant;
    if (size == 0 && !goes_on) out_.ends = false;
    return words + size;
  }

  // Some templates write the answers of tools before they leave the message that called them. What the model
  // writes is there without the answers as well.
  size_t end_before_quote(const Speech& speech) const {
    const size_t begin = passages_[speech.first].begin, words = passages_[speech.last].end;
    const std::optional<Other> alone = render(first_messages(messages_, speech.message + 1), false);
    if (!alone) return words;
    for (const Speech& same : speeches_of(alone->passages)) {
      if (same.message != speech.message) continue;
      const std::string_view said =
          std::string_view(alone->rendered.text).substr(alone->passages[same.first].begin);
      const std::string_view here = std::string_view(text_).substr(begin);
      return begin + trimmed_right(here.substr(0, common_beginning(here, said))).size();
    }
    return words;
  }

  // Up to eos where it is written, here or at the end of the conversation; else without the space behind it.
  size_t closing_size(std::string_view closing, std::string_view rest) const {
    const std::string_view eos = source_.eos;
    if (!eos.empty()) {
      if (const size_t at = closing.find(eos); at != closing.npos) return at + eos.size();
      if (rest.starts_with(eos)) return closing.size() + eos.size();
    }
    return trimmed_right(closing).size();
  }

  // The same text before the same role holds the same end.
  size_t known_later_end(size_t i, std::string_view behind, const Passage* follower) {
    const bool known = follower && follower->message != kNoMessage;
    const std::string next = known ? messages_[follower->message]->value("role", "") : "";
    const auto [found, is_new] = ends_.try_emplace({next, std::string(behind)}, 0);
    if (is_new) found->second = later_end(i, behind, follower);
    return found->second;
  }

  // Some templates end a turn when they come to the next message, or behind all of them.
  size_t later_end(size_t i, std::string_view behind, const Passage* follower) const {
    const std::string_view eos = source_.eos;
    if (!eos.empty() && trimmed(behind).starts_with(eos)) return behind.find(eos) + eos.size();
    const std::optional<Other> last = render(first_messages(messages_, i + 1), false);
    if (last) {
      const std::string tail = tail_of(last->rendered, last->passages);
      const std::string_view end = trimmed_right(behind.substr(0, common_beginning(behind, tail)));
      if (!end.empty()) return end.size();
    }
    if (!follower || follower->message == kNoMessage) return 0;
    // What does not stand before a message of that role elsewhere.
    const Json alone = {{"role", (*messages_[follower->message])["role"]}, {"content", "x"}};
    const std::optional<Other> first = render({&alone}, false);
    if (!first) return 0;
    const auto words = std::find_if(first->passages.begin(), first->passages.end(), [](const Passage& p) {
      return p.speaker != Speaker::writing && p.message == 0;
    });
    if (words == first->passages.end()) return 0;
    const std::string_view header = std::string_view(first->rendered.text).substr(0, words->begin);
    return trimmed_right(behind.substr(0, behind.size() - common_ending(behind, header))).size();
  }

  const SpanSource& source_;
  const Messages& messages_;
  const std::string& text_;
  const std::vector<Passage>& passages_;
  // By the role before and the text behind it; by the role behind and the text before it.
  std::map<std::pair<std::string, std::string>, size_t> headers_, ends_;
  AssistantSpans out_;
};

}  // namespace

AssistantSpans find_assistant_spans(const SpanSource& source, const Messages& messages,
                                    const jinja::Rendered& rendered, const std::vector<Passage>& passages) {
  return Finder(source, messages, rendered, passages).run();
}

std::vector<AssistantSpan> marked_spans(const std::vector<TextSpan>& marked,
                                        const std::vector<Passage>& passages) {
  std::vector<AssistantSpan> out;
  for (const TextSpan& mark : marked) {
    size_t message = kNoMessage;
    const size_t first = out.size();
    auto at = std::ranges::lower_bound(passages, mark.begin, {}, &Passage::end);
    for (; at != passages.end() && at->begin <= mark.end; ++at) {
      const Passage& passage = *at;
      const size_t begin = std::max(passage.begin, mark.begin), end = std::min(passage.end, mark.end);
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

std::string usual_prompt(const SpanSource& source) {
  const Json question = {{"role", "user"}, {"content", "x"}};
  try {
    const std::string silent = source.render({&question}, false).text,
                      prompt = source.render({&question}, true).text;
    return prompt.substr(common_beginning(prompt, silent));
  } catch (const Error&) {
    return {};
  }
}

}  // namespace zeno::data
