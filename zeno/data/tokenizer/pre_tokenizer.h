// Pre-tokenizers of tokenizer.json: how a text is cut into the pieces that the model sees one by one. Each
// step hands its pieces to the next as it finds them; pieces are views, alive only during the call.
// Immutable; safe from any thread.
#pragma once

#include <memory>
#include <vector>

#include "zeno/data/tokenizer/normalize/aligned_text.h"

namespace zeno::data::tokenizer {

class JsonNode;

class PieceSink {
 public:
  virtual ~PieceSink() = default;
  virtual void take(const Piece& piece) = 0;
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Empty pieces are never handed on.
  virtual void split(const Piece& piece, Rewriting& rewriting, PieceSink& next) const = 0;
};

// The steps of a file in order, and what the rest of the tokenizer must know of them.
struct PreTokenizers {
  std::vector<std::unique_ptr<const PreTokenizer>> steps;
  // The last step is ByteLevel, and leaves bytes as they are: the model's vocabulary must be in bytes too.
  bool raw_bytes = false;
  // A step asks whether a piece starts the input, so that origins must be known.
  bool needs_origin = false;
};

// `allow_raw_bytes`: the model can take bytes.
PreTokenizers make_pre_tokenizers(const JsonNode& node, bool allow_raw_bytes);

// Cuts before each `mark` that follows something else: for models in whose vocabulary no token reaches
// across such a place, the same result from shorter pieces.
std::unique_ptr<const PreTokenizer> make_mark_splitter(std::string mark);

}  // namespace zeno::data::tokenizer
