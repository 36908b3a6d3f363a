#include "zeno/data/tokenizer/pre_tokenizer.h"

#include <fmt/format.h>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"
#include "zeno/data/tokenizer/byte_level.h"
#include "zeno/data/tokenizer/json_node.h"
#include "zeno/data/tokenizer/limits.h"
#include "zeno/data/tokenizer/splitter.h"

namespace zeno::data::tokenizer {
namespace {

constexpr std::string_view kMetaspace = "\u2581";

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(const JsonNode& node, bool raw)
      : prefix_space_(node.boolean_or("add_prefix_space", true)), raw_(raw) {
    if (node.boolean_or("use_regex", true)) words_ = make_word_splitter(WordStyle::gpt2);
  }

  void split(const Piece& piece, Rewriting& rewriting, PieceSink& next) const override {
    if (!prefix_space_ || piece.text.starts_with(' ')) return cut(piece, rewriting, next);
    AlignedText text(piece, rewriting);
    Rewriter out(text);
    out.prepend(" ");
    out.keep_rest();
    out.finish();
    cut(text.view(), rewriting, next);
  }

 private:
  struct Mapper final : PieceSink {
    Mapper(Rewriting& rewriting_, PieceSink& next_) : rewriting(rewriting_), next(next_) {}
    void take(const Piece& piece) override {
      AlignedText text(piece, rewriting);
      Rewriter out(text);
      while (out.more()) {
        const std::string bytes(out.next_bytes());
        out.remove();
        for (const char byte : bytes) out.insert(byte_names()[uint8_t(byte)]);
      }
      out.finish();
      next.take(text.view());
    }
    Rewriting& rewriting;
    PieceSink& next;
  };

  void cut(const Piece& piece, Rewriting& rewriting, PieceSink& next) const {
    Mapper mapper(rewriting, next);
    PieceSink& last = raw_ ? next : mapper;
    if (words_)
      words_->split(piece, rewriting, last);
    else
      last.take(piece);
  }

  bool prefix_space_, raw_;
  std::unique_ptr<const PreTokenizer> words_;
};

class Metaspace final : public PreTokenizer {
 public:
  enum class Prepend { always, first, never };

  explicit Metaspace(const JsonNode& node)
      : mark_(node.string_or("replacement", std::string(kMetaspace))),
        split_(node.boolean_or("split", true)) {
    const std::string scheme =
        node.string_or("prepend_scheme", node.boolean_or("add_prefix_space", true) ? "always" : "never");
    if (scheme == "first")
      prepend_ = Prepend::first;
    else if (scheme == "never")
      prepend_ = Prepend::never;
    else if (scheme != "always")
      node.refuse(fmt::format("prepend_scheme {}", scheme), "always, first or never");
    if (mark_.empty() || decode_char(mark_, 0).bytes != mark_.size()) {
      node.refuse(fmt::format("replacement '{}'", mark_), "one character");
    }
  }
  bool needs_origin() const { return prepend_ == Prepend::first; }

  void split(const Piece& piece, Rewriting& rewriting, PieceSink& next) const override {
    AlignedText text(piece, rewriting);
    Rewriter out(text);
    const bool marked = piece.text.starts_with(' ') || piece.text.starts_with(mark_);
    const bool wanted = prepend_ == Prepend::always || (prepend_ == Prepend::first && piece.start() == 0);
    if (wanted && !marked) out.prepend(mark_);
    for (size_t at = 0; (at = text.text.find(' ', at)) != std::string::npos; ++at) {
      out.keep_to(at);
      out.remove();
      out.insert(mark_);
    }
    out.keep_rest();
    out.finish();
    const Piece whole = text.view();
    size_t begin = 0;
    for (size_t at = 0; split_ && (at = whole.text.find(mark_, at)) != std::string_view::npos;
         at += mark_.size()) {
      if (at > begin) next.take(whole.part(begin, at));
      begin = at;
    }
    if (begin < whole.text.size()) next.take(whole.part(begin, whole.text.size()));
  }

 private:
  std::string mark_;
  bool split_;
  Prepend prepend_ = Prepend::always;
};

class MarkSplitter final : public PreTokenizer {
 public:
  explicit MarkSplitter(std::string mark) : mark_(std::move(mark)) {}
  void split(const Piece& piece, Rewriting&, PieceSink& next) const override {
    size_t begin = 0, at = 0;
    while ((at = piece.text.find(mark_, at)) != std::string_view::npos) {
      if (at > begin && !piece.text.substr(begin, at - begin).ends_with(mark_)) {
        next.take(piece.part(begin, at));
        begin = at;
      }
      at += mark_.size();
    }
    if (begin < piece.text.size()) next.take(piece.part(begin, piece.text.size()));
  }

 private:
  std::string mark_;
};

// Sequences may hold sequences; what counts is the list of their steps.
void flatten(const JsonNode& node, std::vector<JsonNode>& steps) {
  if (node.type() != "Sequence") {
    if (steps.size() == kMaxSteps)
      fail(ErrorKind::data, "[tokenizer] {}: has more than {} pre-tokenizers", node.where(), kMaxSteps);
    return steps.push_back(node);
  }
  for (const JsonNode& step : node.at("pretokenizers").items()) flatten(step, steps);
}

}  // namespace

PreTokenizers make_pre_tokenizers(const JsonNode& node, bool allow_raw_bytes) {
  std::vector<JsonNode> nodes;
  flatten(node, nodes);
  PreTokenizers result;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const std::string type = nodes[i].type();
    if (type == "ByteLevel") {
      result.raw_bytes = allow_raw_bytes && i + 1 == nodes.size();
      result.steps.push_back(std::make_unique<ByteLevel>(nodes[i], result.raw_bytes));
    } else if (type == "Metaspace") {
      auto step = std::make_unique<Metaspace>(nodes[i]);
      result.needs_origin |= step->needs_origin();
      result.steps.push_back(std::move(step));
    } else {
      result.steps.push_back(make_splitter(nodes[i]));
    }
  }
  return result;
}

std::unique_ptr<const PreTokenizer> make_mark_splitter(std::string mark) {
  return std::make_unique<MarkSplitter>(std::move(mark));
}

}  // namespace zeno::data::tokenizer
