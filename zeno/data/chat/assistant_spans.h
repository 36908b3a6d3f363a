// Where the assistant's text is in a rendered conversation.
//
// Whose words stand where is known from the rendering itself (speakers.h), so nothing that a user, a system
// message or a tool wrote is ever inside a span. What is left to find out is how much of the template's own
// text around an assistant's words the model has to write:
// - between words of one message: all of it (the marks of a call, of reasoning);
// - before them: what follows the prompt that the template would give the model at this point;
// - behind them: the end of the turn, which the template writes before it leaves the message, or, in some
//   templates, before the header of the next one.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "zeno/data/chat/speakers.h"
#include "zeno/data/jinja/template.h"

namespace zeno::data {

// A range of the text that the model has to write, for one assistant message.
struct AssistantSpan {
  size_t begin = 0, end = 0;
  size_t message = 0;
  bool operator==(const AssistantSpan&) const = default;
};

struct AssistantSpans {
  std::vector<AssistantSpan> spans;  // ascending, disjoint
  bool ends = true;                  // the template ends every turn
};

struct SpanSource {
  // Renders some messages; throws Error(data) where the template refuses them.
  std::function<jinja::Rendered(const jinja::JsonList& messages, bool generation_prompt)> render;
  std::string prompt;  // what makes the model answer a plain question; empty: the template writes nothing
  std::string eos;     // may be empty
  std::string where;   // the template, for errors
};

// An assistant message that is not in the text is an Error(data).
AssistantSpans find_assistant_spans(const SpanSource& source, const jinja::JsonList& messages,
                                    const jinja::Rendered& rendered, const std::vector<Passage>& passages);

// The same for a template that marks the assistant's text with {% generation %}: the marked ranges, without
// other authors' text in them.
std::vector<AssistantSpan> marked_spans(const std::vector<TextSpan>& marked,
                                        const std::vector<Passage>& passages);

// The generation prompt after a plain question; empty if there is none.
std::string usual_prompt(const SpanSource& source);

}  // namespace zeno::data
