// Who wrote the bytes of a rendered conversation: the template, an assistant, or another role.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "zeno/data/jinja/template.h"
#include "zeno/data/text_span.h"

namespace zeno::data {

inline constexpr size_t kNoMessage = size_t(-1);

enum class Speaker : unsigned char {
  writing,    // the template, special tokens, the names of roles
  assistant,  // the words of an assistant's message, where the template writes that message
  other,      // users, system messages, tools, variables; words that the template quotes elsewhere
};

// Bytes [begin, end); may be empty: a message without text.
struct Passage {
  size_t begin = 0, end = 0;
  Speaker speaker = Speaker::writing;
  size_t message = kNoMessage;  // whose words they are; of others, if it is known
  size_t frame = kNoMessage;    // the message that the template was at
};

bool is_assistant(const nlohmann::ordered_json& message);
// The passages of a text that was rendered from `messages`, in order.
std::vector<Passage> passages_of(const jinja::Rendered& rendered, const jinja::JsonList& messages);
// The bytes of others, ascending and apart from each other.
std::vector<TextSpan> words_of_others(const std::vector<Passage>& passages);

}  // namespace zeno::data
