// Post-processors of tokenizer.json: tokens around a text (bos, eos, …) and where spans end. Immutable; safe
// from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "zeno/data/text_span.h"

namespace zeno::data::tokenizer {

class JsonNode;

// Characters of white space at the two ends of a token's text.
struct Blanks {
  uint32_t leading = 0, trailing = 0;
};

// Tokens on their way out. Spans and blanks are kept only if spans are requested.
struct Draft {
  bool with_spans = false;
  std::vector<int32_t> ids;
  std::vector<TextSpan> spans;
  std::vector<Blanks> blanks;

  void add(int32_t id, TextSpan span = {}, Blanks at_ends = {}) {
    ids.push_back(id);
    if (!with_spans) return;
    spans.push_back(span);
    blanks.push_back(at_ends);
  }
};

class PostProcessor {
 public:
  virtual ~PostProcessor() = default;
  // `input` is the text that the spans are of.
  virtual void apply(Draft& draft, std::string_view input, bool add_special) const = 0;
};

std::unique_ptr<const PostProcessor> make_post_processor(const JsonNode& node);

}  // namespace zeno::data::tokenizer
