// What holds for every layout: round trips, bytes that are no text, long words, threads, streams.
#include "zeno/data/tokenizer.h"
#include "zeno/base/utf8.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/support/expect_error.h"
#include "tests/tokenizer/golden.h"

namespace zeno::data {
namespace {

using nlohmann::json;

std::string random_text(std::mt19937& random, size_t length) {
  std::string text;
  for (size_t i = 0; i < length; ++i) {
    static constexpr std::string_view kOften[] = {" ", "  ", "the",     " training", "\n", "'s",
                                                  "1", "é",  "e\u0301", "中",        "😀"};
    char32_t code = random() % 0x110000;
    if (code >= 0xd800 && code < 0xe000) code = 'x';
    if (random() % 3)
      text += kOften[random() % std::size(kOften)];
    else
      append_utf8(text, code);
  }
  return text;
}

class Layout : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, Layout, testing::ValuesIn(kGoldenLayouts),
                         [](const auto& layout) { return layout.param; });

TEST_P(Layout, TextNeverProducesASpecialToken) {
  const Tokenizer tokenizer = golden_tokenizer(GetParam());
  const json file = json::parse(read_file(golden_path(GetParam(), ".json")));
  const json unknown = file.at("model").value("unk_token", json());
  std::string text;
  for (const json& token : file.at("added_tokens")) text += token.at("content").get<std::string>() + " x ";
  for (const int32_t id : tokenizer.encode(text)) {
    const bool allowed = !tokenizer.is_special(id) ||
                         (unknown.is_string() && tokenizer.id_of(unknown.get<std::string>()) == id) ||
                         file.at("model").value("unk_id", -1) == id;
    EXPECT_TRUE(allowed) << id;
  }
  for (const json& token : file.at("added_tokens")) {
    if (!token.at("special")) continue;
    const std::vector<int32_t> ids =
        tokenizer.encode(token.at("content").get<std::string>(), {.parse_special = true});
    EXPECT_EQ(ids, std::vector<int32_t>{token.at("id")});
  }
}

TEST_P(Layout, SpansAreWholeCharactersInside) {
  const Tokenizer tokenizer = golden_tokenizer(GetParam());
  std::mt19937 random(2);
  for (int round = 0; round < 60; ++round) {
    const std::string text = random_text(random, 30);
    const Encoding encoding = tokenizer.encode_with_spans(text);
    ASSERT_EQ(encoding.ids, tokenizer.encode(text));
    ASSERT_EQ(encoding.ids.size(), encoding.spans.size());
    for (const TextSpan& span : encoding.spans) {
      ASSERT_LE(span.begin, span.end);
      ASSERT_LE(span.end, text.size());
      ASSERT_TRUE(is_valid_utf8(std::string_view(text).substr(span.begin, span.end - span.begin)));
    }
  }
}

TEST_P(Layout, TakesAnyBytes) {
  const Tokenizer tokenizer = golden_tokenizer(GetParam());
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::string bytes = round == 0 ? "\xff\xfe <s> \xe4\xb8 x \xed\xa0\x80" : "";
    for (size_t i = 0, length = round == 0 ? 0 : random() % 40; i < length; ++i)
      bytes += char(random() % 4 ? random() : 'a');
    const Encoding encoding = tokenizer.encode_with_spans(bytes, {true, true});
    for (const TextSpan& span : encoding.spans) ASSERT_LE(span.end, bytes.size());
    ASSERT_EQ(tokenizer.encode(bytes, {true, true}), encoding.ids);
    (void)tokenizer.decode(encoding.ids);
  }
}

TEST_P(Layout, ALongWordIsNotQuadratic) {
  const Tokenizer tokenizer = golden_tokenizer(GetParam());
  const auto seconds = [&](const std::string& text) {
    const auto start = std::chrono::steady_clock::now();
    (void)tokenizer.encode(text);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  std::string word;
  for (int i = 0; i < 400'000; ++i) word += char('a' + (i * i / 3 + i % 7) % 26);
  for (const std::string& text : {word, std::string(400'000, ' '), std::string(400'000, '\n') + "x"}) {
    const double small = seconds(text.substr(0, 100'000)), large = seconds(text);
    EXPECT_LT(large, 10 * small + 1.0);  // 16 times if it were quadratic
  }
}

TEST_P(Layout, StreamsWhatDecodeGives) {
  const Tokenizer tokenizer = golden_tokenizer(GetParam());
  std::mt19937 random(4);
  for (int round = 0; round < 20; ++round) {
    const std::vector<int32_t> ids = tokenizer.encode(random_text(random, 12), {true, false});
    StreamDecoder stream(tokenizer);
    std::string text;
    for (const int32_t id : ids) {
      const std::string fresh = stream.push(id);
      ASSERT_TRUE(is_valid_utf8(fresh));
      text += fresh;
    }
    ASSERT_EQ(text + stream.finish(), tokenizer.decode(ids));
  }
}

class ByteLevel : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, ByteLevel, testing::ValuesIn(kByteLevelLayouts),
                         [](const auto& layout) { return layout.param; });

TEST_P(ByteLevel, RoundTripIsExact) {
  const Tokenizer tokenizer = golden_tokenizer(GetParam());
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    std::string text = random_text(random, 20);
    if (std::string_view(GetParam()) != "falcon")
      text += "\xff\x80 \xe4\xb8";  // whose pieces are characters, not bytes
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
}

// Merges the best pair of all, again and again: what byte-pair encoding is by definition.
std::vector<int32_t> merge_by_definition(const json& model, const std::string& word) {
  std::map<std::pair<std::string, std::string>, size_t> ranks;
  for (const json& merge : model.at("merges"))
    ranks.emplace(std::pair<std::string, std::string>(merge[0], merge[1]), ranks.size());
  std::vector<std::string> parts;
  for (const char c : word) parts.push_back(std::string(1, c));
  while (true) {
    size_t best = SIZE_MAX, place = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find({parts[i], parts[i + 1]});
      if (found != ranks.end() && found->second < best) best = found->second, place = i;
    }
    if (best == SIZE_MAX) break;
    parts[place] += parts[place + 1];
    parts.erase(parts.begin() + ptrdiff_t(place) + 1);
  }
  std::vector<int32_t> ids;
  for (const std::string& part : parts) ids.push_back(model.at("vocab").at(part));
  return ids;
}

TEST(Bpe, ShortAndLongWordsMergeByDefinition) {
  const json file = json::parse(read_file(golden_path("gpt2", ".json")));
  const Tokenizer tokenizer = golden_tokenizer("gpt2");
  std::mt19937 random(6);
  for (int round = 0; round < 40; ++round) {
    std::string word;
    for (int i = 0; i < 1 + round * 3; ++i) word += "thearingomdsw"[random() % 13];
    ASSERT_EQ(tokenizer.encode(word), merge_by_definition(file.at("model"), word)) << word;
  }
}

TEST(Bpe, MergesMayBeTexts) {
  json file = json::parse(read_file(golden_path("llama3", ".json")));
  for (json& merge : file["model"]["merges"])
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  const std::string text = "The training of the optimizer is what they're about.";
  EXPECT_EQ(Tokenizer::parse(file.dump(), "t").encode(text), golden_tokenizer("llama3").encode(text));
}

TEST(Tokenizer, EncodesManyTextsInOrder) {
  const Tokenizer tokenizer = golden_tokenizer("qwen2");
  std::mt19937 random(7);
  std::vector<std::string> texts;
  for (int i = 0; i < 300; ++i) texts.push_back(random_text(random, size_t(i % 40)));
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const auto all = tokenizer.encode_all(views, {true, true});
  ASSERT_EQ(all.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) ASSERT_EQ(all[i], tokenizer.encode(texts[i], {true, true}));
  EXPECT_TRUE(tokenizer.encode_all({}).empty());
}

TEST(Tokenizer, DecodeRefusesUnknownIds) {
  for (const char* name : kGoldenLayouts) {
    const Tokenizer tokenizer = golden_tokenizer(name);
    test::expect_error(ErrorKind::data, {"decode"}, [&] { tokenizer.decode(std::vector<int32_t>{-1}); });
    test::expect_error(ErrorKind::data, {"decode"},
                       [&] { tokenizer.decode(std::vector<int32_t>{int32_t(tokenizer.vocab_size())}); });
  }
}

TEST(StreamDecoder, HoldsBackHalfCharacters) {
  const Tokenizer tokenizer = golden_tokenizer("llama2");
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.push(*tokenizer.id_of("<0xE2>")), "");
  EXPECT_EQ(stream.push(*tokenizer.id_of("<0x82>")), "");
  EXPECT_EQ(stream.push(*tokenizer.id_of("<0xAC>")), "\u20ac");
  EXPECT_EQ(stream.push(*tokenizer.id_of("<0xE2>")), "");
  EXPECT_EQ(stream.finish(), "\ufffd");
  const Tokenizer bytes = Tokenizer::parse(byte_tokenizer_json(256), "t");
  StreamDecoder byte_stream(bytes);
  EXPECT_EQ(byte_stream.push(0xe2), "");
  EXPECT_EQ(byte_stream.push('a'),
            "\xe2"
            "a");  // what cannot become a character any more comes as it is
  EXPECT_EQ(byte_stream.push(0xf0), "");
  EXPECT_EQ(byte_stream.finish(), "\xf0");
}

}  // namespace
}  // namespace zeno::data
