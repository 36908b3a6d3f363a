// What one message says without interruption, and what the template writes around it. Pure functions over the
// passages of a rendering.
#pragma once

#include <string>
#include <vector>

#include "zeno/data/chat/speakers.h"

namespace zeno::data {

// Text of one assistant message without other text in between: passages [first, last].
struct Speech {
  size_t first = 0, last = 0, message = 0;
};

// In the order of the text.
std::vector<Speech> speeches_of(const std::vector<Passage>& passages);
// Where the template's text before passage `first` begins.
size_t lead_begin(const std::vector<Passage>& passages, size_t first);
// What the template writes behind the last words of a rendering.
std::string tail_of(const jinja::Rendered& rendered, const std::vector<Passage>& passages);

}  // namespace zeno::data
