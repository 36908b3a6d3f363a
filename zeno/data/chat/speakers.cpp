#include "zeno/data/chat/speakers.h"

#include <nlohmann/json.hpp>
#include <string_view>

namespace zeno::data {
namespace {

bool in_messages(const jinja::Source& source, const nlohmann::ordered_json& messages) {
  return source.variable == "messages" && source.element >= 0 && size_t(source.element) < messages.size();
}

Passage passage_of(const jinja::Origin& origin, const std::vector<jinja::Source>& sources,
                   const nlohmann::ordered_json& messages) {
  Passage out;
  if (origin.frame != 0 && in_messages(sources[origin.frame], messages)) {
    out.frame = size_t(sources[origin.frame].element);
  }
  if (origin.source == 0) return out;
  out.speaker = Speaker::other;
  if (origin.source == jinja::kManySources) return out;
  const jinja::Source& source = sources[origin.source];
  // Special tokens, and the role of a message, are part of the layout.
  if (source.variable.ends_with("_token") || source.key == "role") {
    out.speaker = Speaker::writing;
    return out;
  }
  if (!in_messages(source, messages)) return out;
  out.message = size_t(source.element);
  // Some templates name the function of an earlier call where they write the result: a tool's turn.
  const bool own_frame = out.frame == kNoMessage || out.frame == out.message;
  if (own_frame && is_assistant(messages[out.message])) out.speaker = Speaker::assistant;
  return out;
}

}  // namespace

bool is_assistant(const nlohmann::ordered_json& message) {
  return message.is_object() && message.contains("role") && message["role"] == "assistant";
}

std::vector<Passage> passages_of(const jinja::Rendered& rendered, const nlohmann::ordered_json& messages) {
  std::vector<Passage> out;
  size_t begin = 0;
  for (const jinja::Stretch& stretch : rendered.stretches) {
    Passage passage = passage_of(stretch.origin, rendered.sources, messages);
    passage.begin = begin;
    passage.end = begin = stretch.end;
    out.push_back(passage);
  }
  return out;
}

std::vector<TextSpan> words_of_others(const std::vector<Passage>& passages) {
  std::vector<TextSpan> out;
  for (const Passage& passage : passages) {
    if (passage.speaker != Speaker::other || passage.begin == passage.end) continue;
    if (!out.empty() && out.back().end == passage.begin) {
      out.back().end = passage.end;
    } else {
      out.push_back({passage.begin, passage.end});
    }
  }
  return out;
}

}  // namespace zeno::data
