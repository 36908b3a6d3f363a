#include "zeno/data/tokenizer/splitter.h"

#include <fmt/format.h>

#include <functional>

#include "zeno/base/utf8.h"
#include "zeno/data/tokenizer/json_node.h"
#include "zeno/data/tokenizer/pattern.h"
#include "zeno/data/tokenizer/unicode.h"

namespace zeno::data::tokenizer {
namespace {

// What becomes of a match: a piece of its own, nothing, part of the piece before or after it, or one piece
// with its neighbours of the same kind.
enum class Behavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

Behavior read_behavior(const JsonNode& node) {
  const std::string name = node.string();
  if (name == "Isolated") return Behavior::isolated;
  if (name == "Removed") return Behavior::removed;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  node.refuse(fmt::format("'{}'", name),
              "Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous");
}

using Matches = std::function<void(std::string_view text, const std::function<void(TextSpan)>& take)>;

// Matches of single characters.
Matches each_char(bool (*wanted)(char32_t)) {
  return [wanted](std::string_view text, const std::function<void(TextSpan)>& take) {
    for (size_t at = 0; at < text.size();) {
      const Utf8Char c = decode_char(text, at);
      if (wanted(c.code)) take({at, at + c.bytes});
      at += c.bytes;
    }
  };
}

class Split final : public PreTokenizer {
 public:
  Split(Matches matches, Behavior behavior, bool invert = false)
      : matches_(std::move(matches)), behavior_(behavior), invert_(invert) {}

  void split(const Piece& piece, Rewriting&, PieceSink& next) const override {
    Cutter cutter{piece, next, behavior_};
    size_t done = 0;
    matches_(piece.text, [&](TextSpan match) {
      if (match.begin > done) cutter.add({done, match.begin}, invert_);
      cutter.add(match, !invert_);
      done = match.end;
    });
    if (done < piece.text.size()) cutter.add({done, piece.text.size()}, invert_);
    cutter.finish();
  }

 private:
  // Joins stretches of the text, which come in order, to pieces.
  struct Cutter {
    const Piece& piece;
    PieceSink& next;
    Behavior behavior;
    TextSpan held{};
    bool holding = false, held_match = false;

    void add(TextSpan part, bool match) {
      bool join = false;
      if (behavior == Behavior::contiguous) join = match == held_match;
      if (behavior == Behavior::merged_with_previous) join = match && !held_match;
      if (behavior == Behavior::merged_with_next) join = !match && held_match;
      if (holding && join) {
        held.end = part.end;
      } else {
        finish();
        held = part;
        holding = !(match && behavior == Behavior::removed);
      }
      held_match = match;
    }
    void finish() {
      if (holding && held.begin < held.end) next.take(piece.part(held.begin, held.end));
      holding = false;
    }
  };

  Matches matches_;
  Behavior behavior_;
  bool invert_;
};

class Words final : public PreTokenizer {
 public:
  explicit Words(WordStyle style) : style_(style) {}
  void split(const Piece& piece, Rewriting&, PieceSink& next) const override {
    for (size_t at = 0; at < piece.text.size();) {
      const size_t end = word_end(style_, piece.text, at);
      next.take(piece.part(at, end));
      at = end;
    }
  }

 private:
  WordStyle style_;
};

// White space goes, punctuation stands alone.
class BertSplitter final : public PreTokenizer {
 public:
  void split(const Piece& piece, Rewriting&, PieceSink& next) const override {
    size_t begin = 0, at = 0;
    const auto flush = [&](size_t end) {
      if (begin < end) next.take(piece.part(begin, end));
    };
    while (at < piece.text.size()) {
      const Utf8Char c = decode_char(piece.text, at);
      const size_t end = at + c.bytes;
      if (is_space(c.code) || is_punctuation(c.code)) {
        flush(at);
        begin = at;
        if (is_punctuation(c.code)) flush(end);
        begin = end;
      }
      at = end;
    }
    flush(at);
  }
};

std::unique_ptr<const PreTokenizer> read_split(const JsonNode& node) {
  const Pattern pattern = Pattern::read(node.at("pattern"));
  const Behavior behavior = read_behavior(node.at("behavior"));
  const bool invert = node.boolean_or("invert", false);
  // These regexes match everywhere, so that isolating and, inverted, removing come to the same.
  const auto style = word_style(pattern.source());
  if (style && (behavior == Behavior::isolated || (behavior == Behavior::removed && invert))) {
    return make_word_splitter(*style);
  }
  return std::make_unique<Split>(
      [pattern](std::string_view text, const std::function<void(TextSpan)>& take) {
        pattern.for_each_match(text, take);
      },
      behavior, invert);
}

std::unique_ptr<const PreTokenizer> make_whitespace() {
  // Runs of what \w is to the library's own regexes, and runs of what is neither that nor white space.
  constexpr std::string_view kWords =
      R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]+|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control})"
      R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]+)";
  const Pattern pattern(Regex::native(kWords));
  return std::make_unique<Split>(
      [pattern](std::string_view text, const std::function<void(TextSpan)>& take) {
        pattern.for_each_match(text, take);
      },
      Behavior::removed, true);
}

}  // namespace

std::unique_ptr<const PreTokenizer> make_word_splitter(WordStyle style) {
  return std::make_unique<Words>(style);
}

std::unique_ptr<const PreTokenizer> make_splitter(const JsonNode& node) {
  const std::string type = node.type();
  if (type == "Split") return read_split(node);
  if (type == "Digits") {
    const bool each = node.boolean_or("individual_digits", false);
    return std::make_unique<Split>(each_char(is_number), each ? Behavior::isolated : Behavior::contiguous);
  }
  if (type == "Punctuation") {
    const auto behavior = node.find("behavior");
    return std::make_unique<Split>(each_char(is_punctuation),
                                   behavior ? read_behavior(*behavior) : Behavior::isolated);
  }
  if (type == "WhitespaceSplit") return std::make_unique<Split>(each_char(is_space), Behavior::removed);
  if (type == "Whitespace") return make_whitespace();
  if (type == "BertPreTokenizer") return std::make_unique<BertSplitter>();
  if (type == "CharDelimiterSplit") {
    const Pattern pattern(node.string("delimiter"));
    return std::make_unique<Split>(
        [pattern](std::string_view text, const std::function<void(TextSpan)>& take) {
          pattern.for_each_match(text, take);
        },
        Behavior::removed);
  }
  node.unknown_type("pre-tokenizer");
}

}  // namespace zeno::data::tokenizer
