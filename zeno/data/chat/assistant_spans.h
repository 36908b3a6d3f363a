// Where the assistant speaks in a rendered conversation, for templates that do not mark it with {% generation
// %}.
//
// For the assistant's message i, three renderings tell: the messages before it (R), the same with the
// generation prompt (P), and the messages up to and with it (Q). Where P is the beginning of Q and Q that of
// the whole text, the span is what Q has beyond P. Templates that write history differently (Qwen3 drops the
// thinking of earlier turns) break that; then the message is found in the whole text by rendering it again
// with other words in this one message: what changes is what it says. Its start is the end of the text before
// it, found by the longest ending of R that occurs there, plus as much of the generation prompt as the text
// really has; its end adds what Q has behind the words (the end-of-turn token).
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "zeno/data/text_span.h"

namespace zeno::data {

struct SpanSource {
  // The text of some messages; throws Error(data) where the template refuses them.
  std::function<std::string(const nlohmann::ordered_json& messages, bool generation_prompt)> render;
  std::vector<std::string> turn_ends;  // texts that end a turn, such as the eos token
  std::string where;                   // the template, for errors
};

// `text`: the whole conversation rendered, perhaps with a generation prompt behind it.
std::vector<TextSpan> find_assistant_spans(const SpanSource& source, const nlohmann::ordered_json& messages,
                                           const std::string& text);

// The mark that the template writes behind an assistant's words; empty: not known.
std::string probe_turn_end(const SpanSource& source);

}  // namespace zeno::data
