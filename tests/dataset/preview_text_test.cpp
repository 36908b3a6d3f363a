// Samples and counts as text and as JSON: what is trained stands out, and nothing in a text does harm.
#include "zeno/data/preview/preview_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "zeno/data/preview/preview_json.h"

namespace zeno::data {
namespace {

PreviewSample sample_of(std::vector<PreviewPiece> pieces) {
  return {
      .origin = "a.jsonl:3", .tokens = 12, .trained = 4, .record_tokens = 12, .pieces = std::move(pieces)};
}

TEST(SampleText, MarksWhatIsTrained) {
  const PreviewSample sample = sample_of({{"user\nHi\n", false}, {"Hello\n", true}});
  EXPECT_EQ(sample_text(sample, {}), "a.jsonl:3: 12 tokens, 4 trained\nuser⏎\nHi⏎\n⟦Hello⏎\n⟧\n");
  EXPECT_EQ(sample_text(sample, {.colour = true}),
            "\x1b[1ma.jsonl:3: 12 tokens, 4 trained\x1b[0m\n"
            "\x1b[2muser⏎\x1b[0m\n\x1b[2mHi⏎\x1b[0m\n\x1b[2m\x1b[0m"
            "\x1b[32mHello⏎\x1b[0m\n\x1b[32m\x1b[0m\n");
}

TEST(SampleText, ControlsNoTerminal) {
  const std::string text = sample_text(sample_of({{"\x1b[31mred\r\a\x7f\xc2\x9b"
                                                   "1m\tend\xff",
                                                   true}}),
                                       {.colour = false});
  EXPECT_NE(text.find("⟦␛[31mred␍␇␡\ufffd1m→\tend\ufffd⟧"), std::string::npos) << text;
  PreviewSample named = sample_of({});
  named.origin = "a\x1b[2J.jsonl:1";
  EXPECT_EQ(sample_text(named, {}).find('\x1b'), std::string::npos);
}

TEST(SampleText, ShortensLongPiecesInTheMiddle) {
  std::string word;
  for (int i = 0; i < 1000; ++i) word += "ä";
  const std::string text =
      sample_text(sample_of({{"short", false}, {word, true}, {"end", false}}), {.max_chars = 300});
  EXPECT_NE(text.find("short⟦ä"), std::string::npos) << text;
  EXPECT_NE(text.find("[… 708 characters …]"), std::string::npos) << text;
  EXPECT_NE(text.find("ä⟧end"), std::string::npos) << text;
  const std::string whole = sample_text(sample_of({{word, true}}), {.max_chars = 0});
  EXPECT_NE(whole.find(word), std::string::npos);
}

TEST(SampleText, EndsAfterVeryManyTurns) {
  std::vector<PreviewPiece> pieces;
  for (int i = 0; i < 500; ++i) pieces.push_back({std::string(200, 'x'), i % 2 == 1});
  const std::string text = sample_text(sample_of(std::move(pieces)), {.max_chars = 1000});
  EXPECT_LT(text.size(), 8000u);
  EXPECT_NE(text.find("more pieces …]"), std::string::npos) << text;
}

TEST(SampleText, ShowsWhereItIsCut) {
  PreviewSample sample = sample_of({{"ab", true}});
  sample.first_token = 1234;
  sample.record_tokens = 1250;
  const std::string text = sample_text(sample, {});
  EXPECT_NE(text.find("[✂ 1,234 tokens cut off]⟦ab⟧[✂ 4 tokens cut off]"), std::string::npos) << text;
  sample.rest_is_trained = true;
  EXPECT_NE(sample_text(sample, {}).find("in another sample"), std::string::npos);
}

PreviewCounts example() {
  PreviewCounts counts;
  counts.total = {
      .records = 9, .left_out = 2, .samples = 7, .tokens = 2000, .trained = 500, .cut = 1, .cut_tokens = 40};
  counts.files = {counts.total, counts.total};
  counts.files[0].path = "a.jsonl";
  counts.files[1].path = "b\xff.jsonl";
  counts.lengths = {.median = 20,
                    .p90 = 30,
                    .p99 = 40,
                    .longest = 50,
                    .longest_origin = "a.jsonl:1",
                    .histogram = {0, 1, 8}};
  counts.packing = {.seq_len = 64, .samples = 7, .sequences = 40, .tokens = 2000, .dropped = 3};
  counts.build.bad["not JSON"] = 1;
  counts.build.records = 1300;
  counts.build.nothing_to_learn = 1;
  counts.build.unused["id\x1b"] = 1200;
  return counts;
}

TEST(CountsText, NamesEveryNumber) {
  const std::string text = counts_text(example());
  for (const char* part : {"7 with 2,000 tokens, 500 trained (25.0 %)", "median 20", "longest 50 (a.jsonl:1)",
                           "1 of 7 samples, longer than 64 tokens; 40 tokens lost", "1 bad: not JSON",
                           "1 with nothing to train on", "3 longer than 64 tokens", "78.1 % filled",
                           "'id␛' in 1,200 of 1,300 records", "b\ufffd.jsonl"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is missing in\n" << text;
  }
}

TEST(PreviewJson, HoldsTheSameAndIsValid) {
  using nlohmann::json;
  const json sample = json::parse(sample_json(sample_of({{"a\"\n", false}, {"\xe2\x82", true}})));
  EXPECT_EQ(sample.at("pieces"),
            json::parse(R"([{"text": "a\"\n", "trained": false}, {"text": "\ufffd", "trained": true}])"));
  EXPECT_EQ(sample.at("origin"), "a.jsonl:3");
  EXPECT_EQ(sample.at("trained_tokens"), 4);
  const json counts = json::parse(counts_json(example()));
  EXPECT_EQ(counts.at("trained_share"), 0.25);
  EXPECT_EQ(counts.at("unused_fields"), json::parse(R"({"id\u001b": 1200})"));
  EXPECT_EQ(counts.at("left_out_by_reason").at("too_long"), 3);
  EXPECT_EQ(counts.at("packing").at("fill"), 0.78125);
  EXPECT_EQ(counts.at("files").size(), 2u);
  EXPECT_EQ(counts.at("lengths").at("histogram").at(2), json::parse(R"({"up_to": 4, "records": 8})"));
}

}  // namespace
}  // namespace zeno::data
