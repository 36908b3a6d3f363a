// Post-processors of tokenizer.json: tokens around a text (bos, eos, …) and where spans end. What the steps
// of a file come to is known before there is a text, so tokens can leave one by one. Immutable; safe from any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "zeno/data/text_span.h"

namespace zeno::data::tokenizer {

class JsonNode;

// Characters of white space at the two ends of a token's text.
struct Blanks {
  uint32_t leading = 0, trailing = 0;
};

// What surrounds the tokens of a text.
struct Frame {
  std::vector<int32_t> before, after;
  bool text = true;  // false: the file leaves the text itself out

  // Takes white space out of the span of a token of `input`. `first`: of the text's tokens.
  TextSpan trimmed(TextSpan span, Blanks blanks, std::string_view input, bool first) const;

  // A step that takes white space out. A single space in front may be the one that ByteLevel put there.
  struct Trim {
    bool prefix_space;
    bool at_start;  // no token stood before the text at this step
  };
  std::vector<Trim> trims;
};

class PostProcessor {
 public:
  PostProcessor() = default;  // adds nothing
  explicit PostProcessor(const JsonNode& node);
  const Frame& frame(bool add_special) const { return add_special ? special_ : plain_; }

 private:
  // The text among tokens that are always the same. Each item: the ids to write, or nothing for the text.
  using Items = std::vector<std::optional<std::vector<int32_t>>>;
  // What a file has asked for so far.
  struct Count {
    size_t processors = 0, tokens = 0;
  };
  static Items read_template(const JsonNode& node, Count& count);
  static Items read_around(const JsonNode& node);
  void add(const JsonNode& node, Count& count);
  void add_trim(const JsonNode& node);
  void add_around(const Items& items);

  Frame plain_, special_;
};

}  // namespace zeno::data::tokenizer
