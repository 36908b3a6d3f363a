#include "zeno/data/tokenizer/normalize/normalizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"
#include "zeno/data/tokenizer/json_node.h"
#include "zeno/data/tokenizer/limits.h"
#include "zeno/data/tokenizer/normal_form.h"
#include "zeno/data/tokenizer/pattern.h"
#include "zeno/data/tokenizer/unicode.h"

namespace zeno::data::tokenizer {
namespace {

class Form final : public Normalizer {
 public:
  explicit Form(NormalForm form) : form_(form) {}
  bool changes(std::string_view text) const override { return form_.changes(text); }
  void apply(AlignedText& text) const override { form_.apply(text); }

 private:
  NormalForm form_;
};

// Keeps, drops or replaces one character at a time.
using PerCharacter = void (*)(Rewriter& out);

void lower_character(Rewriter& out) {
  char32_t buffer[2];
  const std::u32string_view lower = to_lower(out.next(), buffer);
  out.replace(lower[0]);
  if (lower.size() > 1) out.insert(lower[1]);
}

void drop_accent(Rewriter& out) { is_mark(out.next()) ? out.remove() : out.keep(); }

// The clean-up of Google's NMT pipelines.
void clean_for_nmt(Rewriter& out) {
  const char32_t c = out.next();
  const bool dropped =
      (c >= 0x1 && c <= 0x8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f;
  const bool space = c == 0x9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
                     (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                     c == 0xfeff || c == 0xfffd;
  if (dropped)
    out.remove();
  else if (space)
    out.replace(' ');
  else
    out.keep();
}

class EachCharacter final : public Normalizer {
 public:
  explicit EachCharacter(PerCharacter step) : step_(step) {}
  void apply(AlignedText& text) const override {
    Rewriter out(text);
    while (out.more()) step_(out);
    out.finish();
  }

 private:
  PerCharacter step_;
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(AlignedText& text) const override {
    const std::string_view in = text.text;
    size_t begin = 0, end = in.size();
    while (left_ && begin < end && is_space(decode_char(in, begin).code))
      begin += decode_char(in, begin).bytes;
    while (right_ && end > begin && is_space(decode_char_before(in, end).code)) {
      end -= decode_char_before(in, end).bytes;
    }
    Rewriter out(text);
    while (out.at() < begin) out.remove();
    out.keep_to(end);
    while (out.more()) out.remove();
    out.finish();
  }

 private:
  bool left_, right_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(AlignedText& text) const override {
    if (text.text.empty()) return;
    Rewriter out(text);
    out.prepend(prefix_);
    out.keep_rest();
    out.finish();
  }

 private:
  std::string prefix_;
};

class ReplaceNormalizer final : public Normalizer {
 public:
  ReplaceNormalizer(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(AlignedText& text) const override {
    std::optional<Rewriter> out;
    pattern_.for_each_match(text.text, [&](TextSpan match) {
      if (!out) out.emplace(text);
      out->keep_to(match.begin);
      while (out->at() < match.end) out->remove();
      out->insert(content_);
    });
    if (!out) return;
    out->keep_rest();
    out->finish();
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class BertNormalizer final : public Normalizer {
 public:
  explicit BertNormalizer(const JsonNode& node)
      : clean_(node.boolean_or("clean_text", true)),
        space_ideographs_(node.boolean_or("handle_chinese_chars", true)),
        lowercase_(node.boolean_or("lowercase", true)),
        strip_(node.boolean_or("strip_accents", lowercase_)) {}

  void apply(AlignedText& text) const override {
    if (clean_) each(text, clean);
    if (space_ideographs_) each(text, space_ideograph);
    if (strip_) {
      NormalForm{.compose = false, .compatible = false}.apply(text);
      each(text, [](Rewriter& out) { category(out.next()) == Category::mn ? out.remove() : out.keep(); });
    }
    if (lowercase_) each(text, lower_character);
  }

 private:
  static void each(AlignedText& text, PerCharacter step) { EachCharacter(step).apply(text); }

  static bool is_control(Category group) {
    return group == Category::cc || group == Category::cf || group == Category::co;
  }

  static void clean(Rewriter& out) {
    const char32_t c = out.next();
    const bool blank = is_space(c);
    const bool control = c == 0 || c == kReplacementCharacter ||
                         (is_control(category(c)) && c != '\t' && c != '\n' && c != '\r');
    if (control)
      out.remove();
    else if (blank)
      out.replace(' ');
    else
      out.keep();
  }

  static void space_ideograph(Rewriter& out) {
    const char32_t c = out.next();
    constexpr char32_t kBlocks[][2] = {{0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df},
                                       {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf},
                                       {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
    const bool ideograph =
        std::ranges::any_of(kBlocks, [&](const auto& block) { return c >= block[0] && c <= block[1]; });
    if (!ideograph) return out.keep();
    out.replace(' ');
    out.insert(c);
    out.insert(' ');
  }

  bool clean_, space_ideographs_, lowercase_, strip_;
};

class SequenceNormalizer final : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<const Normalizer>> steps)
      : steps_(std::move(steps)) {}
  bool changes(std::string_view text) const override {
    return std::ranges::any_of(steps_, [&](const auto& step) { return step->changes(text); });
  }
  void apply(AlignedText& text) const override {
    for (const auto& step : steps_) {
      if (step->changes(text.text)) step->apply(text);
    }
  }

 private:
  std::vector<std::unique_ptr<const Normalizer>> steps_;
};

// `made`: normalizers so far.
std::unique_ptr<const Normalizer> make(const JsonNode& node, size_t& made) {
  const std::string type = node.type();
  if (type == "Sequence") {
    std::vector<std::unique_ptr<const Normalizer>> steps;
    for (const JsonNode& step : node.at("normalizers").items()) steps.push_back(make(step, made));
    return std::make_unique<SequenceNormalizer>(std::move(steps));
  }
  if (++made > kMaxSteps)
    fail(ErrorKind::data, "[tokenizer] {}: has more than {} normalizers", node.where(), kMaxSteps);
  const auto form = [](bool compose, bool compatible) {
    return std::make_unique<Form>(NormalForm{.compose = compose, .compatible = compatible});
  };
  if (type == "NFC") return form(true, false);
  if (type == "NFD") return form(false, false);
  if (type == "NFKC") return form(true, true);
  if (type == "NFKD") return form(false, true);
  if (type == "Lowercase") return std::make_unique<EachCharacter>(lower_character);
  if (type == "StripAccents") return std::make_unique<EachCharacter>(drop_accent);
  if (type == "Nmt") return std::make_unique<EachCharacter>(clean_for_nmt);
  if (type == "Strip") {
    return std::make_unique<Strip>(node.at("strip_left").boolean(), node.at("strip_right").boolean());
  }
  if (type == "Prepend") return std::make_unique<Prepend>(node.at("prepend").string_up_to(kMaxTokenBytes));
  if (type == "Replace") {
    return std::make_unique<ReplaceNormalizer>(Pattern::read(node.at("pattern")),
                                               node.at("content").string_up_to(kMaxTokenBytes));
  }
  if (type == "BertNormalizer") return std::make_unique<BertNormalizer>(node);
  if (type == "Precompiled") return make_character_map(node);
  node.unknown_type("normalizer");
}

}  // namespace

std::unique_ptr<const Normalizer> make_normalizer(const JsonNode& node) {
  size_t made = 0;
  return make(node, made);
}

}  // namespace zeno::data::tokenizer
