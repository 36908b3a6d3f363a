#include "zeno/data/tokenizer/post_processor.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"
#include "zeno/data/tokenizer/json_node.h"
#include "zeno/data/tokenizer/limits.h"

namespace zeno::data::tokenizer {
namespace {

// Takes the white space out of spans. A single space in front may be the one that ByteLevel put there.
class TrimSpans final : public PostProcessor {
 public:
  explicit TrimSpans(bool prefix_space) : prefix_space_(prefix_space) {}

  void apply(Draft& draft, std::string_view input, bool) const override {
    for (size_t i = 0; i < draft.spans.size(); ++i) {
      auto& [begin, end] = draft.spans[i];
      auto [leading, trailing] = draft.blanks[i];
      if (leading == 1 && prefix_space_ && (i == 0 || begin == 0)) leading = 0;
      for (; leading > 0 && begin < end; --leading) begin += decode_char(input, begin).bytes;
      for (; trailing > 0 && end > begin; --trailing) end -= decode_char_before(input, end).bytes;
    }
  }

 private:
  bool prefix_space_;
};

// The text among tokens that are always the same.
class Template final : public PostProcessor {
 public:
  // Each item: the ids to write, or nothing for the text.
  using Items = std::vector<std::optional<std::vector<int32_t>>>;
  explicit Template(Items items) : items_(std::move(items)) {}

  void apply(Draft& draft, std::string_view, bool add_special) const override {
    if (!add_special) return;
    Draft out;
    out.with_spans = draft.with_spans;
    for (const auto& ids : items_) {
      if (ids) {
        for (const int32_t id : *ids) out.add(id);
        continue;
      }
      out.ids.insert(out.ids.end(), draft.ids.begin(), draft.ids.end());
      out.spans.insert(out.spans.end(), draft.spans.begin(), draft.spans.end());
      out.blanks.insert(out.blanks.end(), draft.blanks.begin(), draft.blanks.end());
    }
    draft = std::move(out);
  }

 private:
  Items items_;
};

class SequenceProcessor final : public PostProcessor {
 public:
  explicit SequenceProcessor(std::vector<std::unique_ptr<const PostProcessor>> steps)
      : steps_(std::move(steps)) {}
  void apply(Draft& draft, std::string_view input, bool add_special) const override {
    for (const auto& step : steps_) step->apply(draft, input, add_special);
  }

 private:
  std::vector<std::unique_ptr<const PostProcessor>> steps_;
};

int32_t read_id(const JsonNode& node) { return int32_t(node.integer(0, kMaxId)); }

// What a file has asked for so far.
struct Count {
  size_t processors = 0, tokens = 0;
};

Template::Items read_template(const JsonNode& node, Count& count) {
  Template::Items items;
  for (const JsonNode& item : node.at("single").items()) {
    if (const auto sequence = item.find("Sequence")) {
      const std::string which = sequence->string("id");
      if (which != "A") sequence->refuse(fmt::format("sequence '{}'", which), "A: one text has no other");
      if (std::ranges::any_of(items, [](const auto& other) { return !other; }))
        fail(ErrorKind::data, "[tokenizer] {}: sequence A occurs twice", node.where());
      items.push_back(std::nullopt);
      continue;
    }
    const std::string name = item.at("SpecialToken").string("id");
    std::vector<int32_t> ids;
    for (const JsonNode& id : node.at("special_tokens").at(name.c_str()).at("ids").items()) {
      if (++count.tokens > kMaxAddedTokens)
        item.refuse("more tokens", fmt::format("at most {}", kMaxAddedTokens));
      ids.push_back(read_id(id));
    }
    items.push_back(std::move(ids));
  }
  return items;
}

// ["[CLS]", 101]
std::vector<int32_t> read_named_id(const JsonNode& node) {
  const std::vector<JsonNode> parts = node.items();
  if (parts.size() != 2) node.refuse("another shape", "a token and its id");
  return {read_id(parts[1])};
}

Template::Items read_around(const JsonNode& node) {
  return {read_named_id(node.at("cls")), std::nullopt, read_named_id(node.at("sep"))};
}

std::unique_ptr<const PostProcessor> make(const JsonNode& node, Count& count) {
  const std::string type = node.type();
  if (++count.processors > kMaxSteps)
    fail(ErrorKind::data, "[tokenizer] {}: has more than {} processors", node.where(), kMaxSteps);
  std::vector<std::unique_ptr<const PostProcessor>> steps;
  const auto trim = [&] {
    if (!node.boolean_or("trim_offsets", true)) return;
    steps.push_back(std::make_unique<TrimSpans>(node.boolean_or("add_prefix_space", true)));
  };
  if (type == "ByteLevel") {
    trim();
  } else if (type == "TemplateProcessing") {
    steps.push_back(std::make_unique<Template>(read_template(node, count)));
  } else if (type == "BertProcessing") {
    steps.push_back(std::make_unique<Template>(read_around(node)));
  } else if (type == "RobertaProcessing") {
    trim();
    steps.push_back(std::make_unique<Template>(read_around(node)));
  } else if (type == "Sequence") {
    for (const JsonNode& step : node.at("processors").items()) steps.push_back(make(step, count));
  } else {
    node.unknown_type("post-processor");
  }
  return std::make_unique<SequenceProcessor>(std::move(steps));
}

}  // namespace

std::unique_ptr<const PostProcessor> make_post_processor(const JsonNode& node) {
  Count count;
  return make(node, count);
}

}  // namespace zeno::data::tokenizer
