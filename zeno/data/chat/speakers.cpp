#include "zeno/data/chat/speakers.h"

#include <nlohmann/json.hpp>
#include <string_view>

namespace zeno::data {
namespace {

bool in_messages(const jinja::Source& source, const jinja::JsonList& messages) {
  return source.variable == "messages" && source.element >= 0 && size_t(source.element) < messages.size();
}

// Of a source, wherever the template writes it.
Passage passage_of(const jinja::Source& source, const jinja::JsonList& messages) {
  Passage out;
  // Special tokens, and the role of a message, are part of the layout.
  if (source.variable.ends_with("_token") || source.key == "role") return out;
  out.speaker = Speaker::other;
  if (!in_messages(source, messages)) return out;
  out.message = size_t(source.element);
  if (is_assistant(*messages[out.message])) out.speaker = Speaker::assistant;
  return out;
}

std::vector<Passage> passages_of_sources(const std::vector<jinja::Source>& sources,
                                         const jinja::JsonList& messages) {
  std::vector<Passage> out(sources.size());
  for (size_t i = 1; i < sources.size(); ++i) out[i] = passage_of(sources[i], messages);
  return out;
}

}  // namespace

bool is_assistant(const nlohmann::ordered_json& message) {
  return message.is_object() && message.contains("role") && message["role"] == "assistant";
}

std::vector<Passage> passages_of(const jinja::Rendered& rendered, const jinja::JsonList& messages) {
  const std::vector<Passage> sources = passages_of_sources(rendered.sources, messages);
  std::vector<Passage> out;
  out.reserve(rendered.stretches.size());
  size_t begin = 0;
  for (const jinja::Stretch& stretch : rendered.stretches) {
    const auto [source, frame] = stretch.origin;
    Passage passage;
    if (source == jinja::kManySources) {
      passage.speaker = Speaker::other;
    } else {
      passage = sources[source];
    }
    const jinja::Source& at = rendered.sources[frame];
    if (frame != 0 && in_messages(at, messages)) passage.frame = size_t(at.element);
    // Some templates name the function of an earlier call where they write the result: a tool's turn.
    const bool elsewhere = passage.frame != kNoMessage && passage.frame != passage.message;
    if (passage.speaker == Speaker::assistant && elsewhere) passage.speaker = Speaker::other;
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
