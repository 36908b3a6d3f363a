#include "zeno/data/tokenizer/decoder.h"

#include <algorithm>
#include <functional>

#include "zeno/base/utf8.h"
#include "zeno/data/tokenizer/byte_level.h"
#include "zeno/data/tokenizer/json_node.h"
#include "zeno/data/tokenizer/pattern.h"

namespace zeno::data::tokenizer {
namespace {

using Tokens = std::vector<std::string>;

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
}

void join(Tokens& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  tokens = {std::move(text)};
}

// Bytes that are not UTF-8 stay as they are, so that every text comes back.
void decode_byte_level(Tokens& tokens) {
  for (std::string& token : tokens) {
    if (auto bytes = bytes_of_names(token)) token = std::move(*bytes);
  }
  join(tokens);
}

// The byte of "<0x41>", or nothing.
std::optional<char> fallback_byte(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  if (!isxdigit(uint8_t(token[3])) || !isxdigit(uint8_t(token[4]))) return std::nullopt;
  return char(std::stoi(token.substr(3, 2), nullptr, 16));
}

// Runs of byte tokens become their text; a run that is not UTF-8 becomes one U+FFFD per byte.
void decode_byte_fallback(Tokens& tokens) {
  Tokens out;
  std::string run;
  const auto flush = [&] {
    if (run.empty()) return;
    if (is_valid_utf8(run))
      out.push_back(run);
    else
      out.insert(out.end(), run.size(), "\ufffd");
    run.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = fallback_byte(token)) {
      run += *byte;
    } else {
      flush();
      out.push_back(std::move(token));
    }
  }
  flush();
  tokens = std::move(out);
}

class Plain final : public Decoder {
 public:
  explicit Plain(void (*step)(Tokens&)) : step_(step) {}
  void apply(Tokens& tokens) const override { step_(tokens); }

 private:
  void (*step_)(Tokens&);
};

class StripDecoder final : public Decoder {
 public:
  explicit StripDecoder(const JsonNode& node)
      : content_(node.string("content")),
        start_(size_t(node.at("start").integer(0, INT32_MAX))),
        stop_(size_t(node.at("stop").integer(0, INT32_MAX))) {
    if (content_.empty()) node.refuse("no content", "one character");
  }
  void apply(Tokens& tokens) const override {
    for (std::string& token : tokens) {
      std::string_view text = token;
      for (size_t i = 0; i < start_ && text.starts_with(content_); ++i) text.remove_prefix(content_.size());
      for (size_t i = 0; i < stop_ && text.ends_with(content_); ++i) text.remove_suffix(content_.size());
      token = std::string(text);
    }
  }

 private:
  std::string content_;
  size_t start_, stop_;
};

class ReplaceDecoder final : public Decoder {
 public:
  explicit ReplaceDecoder(const JsonNode& node)
      : pattern_(Pattern::read(node.at("pattern"))), content_(node.string("content")) {}
  void apply(Tokens& tokens) const override {
    for (std::string& token : tokens) {
      std::string out;
      size_t done = 0;
      pattern_.for_each_match(token, [&](TextSpan match) {
        out += std::string_view(token).substr(done, match.begin - done);
        out += content_;
        done = match.end;
      });
      if (done > 0 || !out.empty()) token = out + token.substr(done);
    }
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class MetaspaceDecoder final : public Decoder {
 public:
  explicit MetaspaceDecoder(const JsonNode& node)
      : mark_(node.string_or("replacement", "\u2581")),
        prepended_(node.string_or("prepend_scheme",
                                  node.boolean_or("add_prefix_space", true) ? "always" : "never") !=
                   "never") {
    if (mark_.empty()) node.refuse("no replacement", "one character");
  }
  void apply(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], mark_, i == 0 && prepended_ ? "" : " ");
  }

 private:
  std::string mark_;
  bool prepended_;
};

class WordPieceDecoder final : public Decoder {
 public:
  explicit WordPieceDecoder(const JsonNode& node)
      : prefix_(node.string_or("prefix", "##")), cleanup_(node.boolean_or("cleanup", true)) {}
  void apply(Tokens& tokens) const override {
    static constexpr std::pair<std::string_view, std::string_view> kTidy[] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) {
        if (tokens[i].starts_with(prefix_))
          tokens[i].erase(0, prefix_.size());
        else
          tokens[i].insert(tokens[i].begin(), ' ');
      }
      if (!cleanup_) continue;
      for (const auto& [what, by] : kTidy) replace_all(tokens[i], what, by);
    }
  }

 private:
  std::string prefix_;
  bool cleanup_;
};

// Words end with a suffix, which becomes the space between them.
class WordSuffix final : public Decoder {
 public:
  explicit WordSuffix(const JsonNode& node) : suffix_(node.string_or("suffix", "</w>")) {
    if (suffix_.empty()) node.refuse("no suffix", "one");
  }
  void apply(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i)
      replace_all(tokens[i], suffix_, i + 1 < tokens.size() ? " " : "");
  }

 private:
  std::string suffix_;
};

class SequenceDecoder final : public Decoder {
 public:
  explicit SequenceDecoder(const JsonNode& node) {
    for (const JsonNode& step : node.at("decoders").items()) steps_.push_back(make_decoder(step));
  }
  void apply(Tokens& tokens) const override {
    for (const auto& step : steps_) step->apply(tokens);
  }

 private:
  std::vector<std::unique_ptr<const Decoder>> steps_;
};

}  // namespace

std::unique_ptr<const Decoder> make_decoder(const JsonNode& node) {
  const std::string type = node.type();
  if (type == "ByteLevel") return std::make_unique<Plain>(decode_byte_level);
  if (type == "ByteFallback") return std::make_unique<Plain>(decode_byte_fallback);
  if (type == "Fuse") return std::make_unique<Plain>(join);
  if (type == "Strip") return std::make_unique<StripDecoder>(node);
  if (type == "Replace") return std::make_unique<ReplaceDecoder>(node);
  if (type == "Metaspace") return std::make_unique<MetaspaceDecoder>(node);
  if (type == "WordPiece") return std::make_unique<WordPieceDecoder>(node);
  if (type == "BPEDecoder") return std::make_unique<WordSuffix>(node);
  if (type == "Sequence") return std::make_unique<SequenceDecoder>(node);
  node.unknown_type("decoder");
}

}  // namespace zeno::data::tokenizer
