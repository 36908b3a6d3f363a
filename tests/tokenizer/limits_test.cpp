// Files that ask for work or memory without end are refused, and bounds hold for a whole text or file: what
// stays below them for each piece or step may still add up. Long texts that real files meet are no such case.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/expect_error.h"
#include "zeno/data/tokenizer.h"

namespace zeno::data {
namespace {

using nlohmann::json;
using test::expect_error;

std::string repeated(std::string_view text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

Tokenizer parse_file(const json& file) { return Tokenizer::parse(file.dump(), "tokenizer.json"); }

json steps(const char* type, const char* key, json list) { return {{"type", type}, {key, std::move(list)}}; }
json normalizers(json list) { return steps("Sequence", "normalizers", std::move(list)); }
json pre_tokenizers(json list) { return steps("Sequence", "pretokenizers", std::move(list)); }
json processors(json list) { return steps("Sequence", "processors", std::move(list)); }

json replace(const char* kind, const std::string& from, const std::string& to) {
  return {{"type", "Replace"}, {"pattern", {{kind, from}}}, {"content", to}};
}
json metaspace(bool split) {
  return {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}, {"split", split}};
}
json byte_level() { return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}; }

// Words of the letter a, and unknown characters.
json words_of_a() {
  return {{"added_tokens", {{{"id", 2}, {"content", "<s>"}, {"special", false}, {"normalized", false}}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"vocab", {{"<unk>", 0}, {"a", 1}, {"▁", 3}, {"▁a", 4}}},
            {"merges", {"▁ a"}}}}};
}

json unigram(const std::string& token) {
  json vocab =
      json::array({json::array({"<unk>", 0.0}), json::array({"a", -1.0}), json::array({token, -2.0})});
  return {{"added_tokens", json::array()},
          {"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", std::move(vocab)}}}};
}

void expect_too_long(const json& file, const std::string& text) {
  const Tokenizer tokenizer = parse_file(file);
  expect_error(ErrorKind::data, {"normalizers expand one text to more than"},
               [&] { (void)tokenizer.encode(text); });
}

TEST(TokenizerLimits, PiecesOfOneTextShareTheRoomToGrow) {
  json file = words_of_a();
  const json longer = replace("String", "a", repeated("a", 1000));
  file["normalizer"] = normalizers({longer, longer});
  EXPECT_EQ(parse_file(file).encode("a").size(), 1'000'000u);
  expect_too_long(file, repeated("a<s>", 100));
}

TEST(TokenizerLimits, WhatIsRemovedAgainCounts) {
  json file = words_of_a();
  const json longer = replace("String", "a", repeated("a", 1000));
  file["normalizer"] = normalizers({longer, longer, replace("Regex", "a+", "a")});
  EXPECT_EQ(parse_file(file).encode("a").size(), 1u);
  expect_too_long(file, repeated("a<s>", 100));
}

TEST(TokenizerLimits, PreTokenizersThatDoubleAreBounded) {
  json file = words_of_a();
  file["model"]["byte_fallback"] = true;  // no bytes, but their names
  file["pre_tokenizer"] = pre_tokenizers(json(40, byte_level()));
  expect_too_long(file, "é");
}

TEST(TokenizerLimits, AddedTokensShareTheRoomToGrow) {
  json file = words_of_a();
  const json longer = replace("String", "a", repeated("a", 1000));
  file["normalizer"] = normalizers({longer, longer});
  for (int i = 0; i < 10; ++i)
    file["added_tokens"].push_back(
        {{"id", 5 + i}, {"content", "a" + std::to_string(i)}, {"special", false}, {"normalized", true}});
  expect_error(ErrorKind::data, {"normalizers expand one text to more than"},
               [&] { (void)parse_file(file); });
}

TEST(TokenizerLimits, StepsAreCountedHoweverNested) {
  json file = words_of_a();
  file["normalizer"] = normalizers(json(64, {{"type", "NFC"}}));
  file["pre_tokenizer"] = pre_tokenizers(json(64, {{"type", "Whitespace"}}));
  file["post_processor"] = processors(json(63, byte_level()));
  EXPECT_EQ(parse_file(file).encode("a a").size(), 2u);

  const auto refused = [&](const char* part, const json& inner, const char* what, auto make) {
    json bad = words_of_a();
    bad[part] = make(json(8, make(json(9, inner))));
    expect_error(ErrorKind::data, {"tokenizer.json", "has more than 64 ", what},
                 [&] { (void)parse_file(bad); });
  };
  refused("normalizer", {{"type", "NFC"}}, "normalizers", normalizers);
  refused("pre_tokenizer", {{"type", "Whitespace"}}, "pre-tokenizers", pre_tokenizers);
  refused("post_processor", byte_level(), "processors", processors);
}

TEST(TokenizerLimits, TemplatesTogetherAddAThousandTokens) {
  const auto with = [](size_t templates, size_t ids) {
    json file = words_of_a();
    const json start = {{"id", "[X]"}, {"ids", json(ids, 1)}, {"tokens", json(ids, "a")}};
    const json single = {{{"SpecialToken", {{"id", "[X]"}, {"type_id", 0}}}},
                         {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}};
    file["post_processor"] = processors(json(templates, {{"type", "TemplateProcessing"},
                                                         {"single", single},
                                                         {"pair", json::array()},
                                                         {"special_tokens", {{"[X]", start}}}}));
    return file;
  };
  EXPECT_EQ(parse_file(with(2, 512)).encode("a", {.add_special = true}).size(), 1025u);
  expect_error(ErrorKind::data, {"at most 1024"}, [&] { (void)parse_file(with(2, 513)); });
}

TEST(TokenizerLimits, ATemplateHasTheTextOnce) {
  json file = words_of_a();
  const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  file["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", {text, text}},
                            {"pair", json::array()},
                            {"special_tokens", json::object()}};
  expect_error(ErrorKind::data, {"tokenizer.json.post_processor: sequence A occurs twice"},
               [&] { (void)parse_file(file); });
}

TEST(TokenizerLimits, TokensThatAreMatchedEverywhereAreShort) {
  const auto expect_refused = [](const json& file) {
    expect_error(ErrorKind::data, {"513 bytes", "at most 512"}, [&] { (void)parse_file(file); });
  };
  const std::string fits = repeated("a", 512), longer = repeated("a", 513);
  EXPECT_EQ(parse_file(unigram(fits)).encode(longer).size(), 2u);
  expect_refused(unigram(longer));

  json pieces = words_of_a();
  pieces["model"] = {{"type", "WordPiece"}, {"unk_token", "<unk>"}, {"vocab", {{"<unk>", 0}, {longer, 1}}}};
  expect_refused(pieces);

  json added = words_of_a();
  added["added_tokens"][0]["content"] = longer;
  expect_refused(added);
}

TEST(TokenizerLimits, APieceHasABound) {
  const std::string word(size_t(9) << 20, 'a');
  for (const json& file : {words_of_a(), unigram("aa")})
    expect_error(ErrorKind::data, {"without a word boundary", "split the text"},
                 [&, tokenizer = parse_file(file)] { (void)tokenizer.encode(word); });
}

TEST(TokenizerLimits, ALongTextOfWordsIsNoPiece) {
  json file = words_of_a();
  const size_t words = size_t(3) << 20;
  const std::string text = repeated(" aa", words);
  for (const bool split : {false, true}) {
    file["pre_tokenizer"] = metaspace(split);
    EXPECT_EQ(parse_file(file).encode(text).size(), 2 * words) << split;
  }
}

}  // namespace
}  // namespace zeno::data
