#include "zeno/data/tokenizer/post_processor.h"

#include <fmt/format.h>

#include <algorithm>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"
#include "zeno/data/tokenizer/json_node.h"
#include "zeno/data/tokenizer/limits.h"

namespace zeno::data::tokenizer {
namespace {

int32_t read_id(const JsonNode& node) { return int32_t(node.integer(0, kMaxId)); }

// ["[CLS]", 101]
std::vector<int32_t> read_named_id(const JsonNode& node) {
  const std::vector<JsonNode> parts = node.items();
  if (parts.size() != 2) node.refuse("another shape", "a token and its id");
  return {read_id(parts[1])};
}

void append(std::vector<int32_t>& to, const std::vector<int32_t>& ids) {
  to.insert(to.end(), ids.begin(), ids.end());
}

}  // namespace

TextSpan Frame::trimmed(TextSpan span, Blanks blanks, std::string_view input, bool first) const {
  auto& [begin, end] = span;
  for (const Trim& trim : trims) {
    auto [leading, trailing] = blanks;
    if (leading == 1 && trim.prefix_space && ((first && trim.at_start) || begin == 0)) leading = 0;
    for (; leading > 0 && begin < end; --leading) begin += decode_char(input, begin).bytes;
    for (; trailing > 0 && end > begin; --trailing) end -= decode_char_before(input, end).bytes;
  }
  return span;
}

PostProcessor::PostProcessor(const JsonNode& node) {
  Count count;
  add(node, count);
}

void PostProcessor::add(const JsonNode& node, Count& count) {
  const std::string type = node.type();
  if (++count.processors > kMaxSteps)
    fail(ErrorKind::data, "[tokenizer] {}: has more than {} processors", node.where(), kMaxSteps);
  if (type == "ByteLevel") {
    add_trim(node);
  } else if (type == "TemplateProcessing") {
    add_around(read_template(node, count));
  } else if (type == "BertProcessing") {
    add_around(read_around(node));
  } else if (type == "RobertaProcessing") {
    add_trim(node);
    add_around(read_around(node));
  } else if (type == "Sequence") {
    for (const JsonNode& step : node.at("processors").items()) add(step, count);
  } else {
    node.unknown_type("post-processor");
  }
}

void PostProcessor::add_trim(const JsonNode& node) {
  if (!node.boolean_or("trim_offsets", true)) return;
  const bool prefix_space = node.boolean_or("add_prefix_space", true);
  plain_.trims.push_back({prefix_space, true});
  special_.trims.push_back({prefix_space, special_.before.empty()});
}

void PostProcessor::add_around(const Items& items) {
  Frame out{.before = {}, .after = {}, .text = false, .trims = special_.trims};
  for (const auto& ids : items) {
    if (ids) {
      append(out.text ? out.after : out.before, *ids);
    } else {
      append(out.before, special_.before);
      out.text = special_.text;
      append(out.text ? out.after : out.before, special_.after);
    }
  }
  special_ = std::move(out);
}

PostProcessor::Items PostProcessor::read_template(const JsonNode& node, Count& count) {
  Items items;
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

PostProcessor::Items PostProcessor::read_around(const JsonNode& node) {
  return {read_named_id(node.at("cls")), std::nullopt, read_named_id(node.at("sep"))};
}

}  // namespace zeno::data::tokenizer
