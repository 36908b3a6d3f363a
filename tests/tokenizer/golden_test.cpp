// Against the Hugging Face library, case by case (tests/golden/tokenizers, written by
// tools/golden_tokenizers.py).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/tokenizer/golden.h"

namespace zeno::data {
namespace {

using nlohmann::json;

class Golden : public testing::TestWithParam<const char*> {};

std::vector<TextSpan> spans_of(const json& flat) {
  std::vector<TextSpan> spans;
  for (size_t i = 0; i + 1 < flat.size(); i += 2) spans.push_back({flat[i], flat[i + 1]});
  return spans;
}

std::string shown(const std::vector<TextSpan>& spans) {
  std::string text;
  for (const TextSpan& span : spans) text += fmt::format("{}-{} ", span.begin, span.end);
  return text;
}

TEST_P(Golden, SameAsTheLibrary) {
  const Tokenizer tokenizer = golden_tokenizer(GetParam());
  for (const json& golden : json::parse(read_file(golden_path(GetParam(), ".cases.json")))) {
    const std::string text = golden.at("text");
    SCOPED_TRACE(testing::PrintToString(text));
    EXPECT_EQ(tokenizer.encode(text), golden.at("plain").get<std::vector<int32_t>>());
    const EncodeOptions special{.add_special = true, .parse_special = true};
    const Encoding encoding = tokenizer.encode_with_spans(text, special);
    EXPECT_EQ(encoding.ids, golden.at("ids").get<std::vector<int32_t>>());
    EXPECT_EQ(encoding.ids, tokenizer.encode(text, special));
    EXPECT_EQ(shown(encoding.spans), shown(spans_of(golden.at("spans"))));
    const auto expected = [&](const char* key) {
      return golden.at(key).is_null() ? text : golden.at(key).get<std::string>();
    };
    EXPECT_EQ(tokenizer.decode(encoding.ids), expected("decoded"));
    EXPECT_EQ(tokenizer.decode(encoding.ids, true), expected("skipped"));
  }
}

// The library reads files without the type of their model by the keys they have.
TEST_P(Golden, NeedsNoTypeOfTheModel) {
  json file = json::parse(read_file(golden_path(GetParam(), ".json")));
  file.at("model").erase("type");
  const Tokenizer tokenizer = Tokenizer::parse(file.dump(), "untyped"), typed = golden_tokenizer(GetParam());
  for (const json& golden : json::parse(read_file(golden_path(GetParam(), ".cases.json")))) {
    const std::string text = golden.at("text");
    EXPECT_EQ(tokenizer.encode(text), typed.encode(text));
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Golden, testing::ValuesIn(kGoldenLayouts),
                         [](const auto& layout) { return layout.param; });

}  // namespace
}  // namespace zeno::data
