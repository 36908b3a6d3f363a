// Model folders: which files are read, and what they say of the tokens that begin, end and pad a text.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"
#include "tests/tokenizer/golden.h"

namespace zeno::data {
namespace {

using nlohmann::json;
using test::expect_error;

json golden_file(const char* name) { return json::parse(read_file(golden_path(name, ".json"))); }

void write_vocab_and_merges(const test::TempDir& folder, const json& file) {
  folder.write("vocab.json", file.at("model").at("vocab").dump());
  std::string merges = "#version: 0.2\n";
  for (const json& merge : file.at("model").at("merges")) {
    merges += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  }
  folder.write("merges.txt", merges);
}

TEST(TokenizerFolder, ReadsVocabAndMerges) {
  const test::TempDir folder;
  EXPECT_FALSE(Tokenizer::exists(folder.path()));
  expect_error(ErrorKind::data, {"tokenizer.json", "vocab.json", "token file"},
               [&] { Tokenizer::open(folder.path()); });
  write_vocab_and_merges(folder, golden_file("gpt2"));
  EXPECT_TRUE(Tokenizer::exists(folder.path()));
  const Tokenizer tokenizer = Tokenizer::open(folder.path());
  const std::string text = "The optimizer's training, don't you see?\n\n  100 x<|endoftext|>";
  EXPECT_EQ(tokenizer.encode(text), golden_tokenizer("gpt2").encode(text));
  EXPECT_EQ(tokenizer.encode(text, {.parse_special = true}).back(), tokenizer.eos());
  EXPECT_EQ(tokenizer.eos(), tokenizer.id_of("<|endoftext|>"));
}

TEST(TokenizerFolder, RefusesWhatIsNestedDeeplyOrHasTooManyValues) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  std::string many = "[\"\"";
  for (int i = 0; i < 4'000'000; ++i) many += ",\"\"";
  const std::string good = golden_file("gpt2").dump();
  for (const auto& [value, reason] : {std::pair(deep, "nested deeper"), std::pair(many + "]", "4,000,000")}) {
    const test::TempDir folder;
    folder.write("tokenizer.json", "{\"more\": " + value + "," + good.substr(1));
    expect_error(ErrorKind::data, {"tokenizer.json", reason}, [&] { Tokenizer::open(folder.path()); });
  }
  const test::TempDir folder;
  write_vocab_and_merges(folder, golden_file("gpt2"));
  folder.write("vocab.json", "{\"a\": " + deep + "}");
  expect_error(ErrorKind::data, {"vocab.json", "nested deeper"}, [&] { Tokenizer::open(folder.path()); });
}

// What a file quotes is quoted in part.
TEST(TokenizerFolder, ErrorsAreShort) {
  const std::string word(1 << 20, 'q');
  const auto change = [](const std::function<void(json&)>& spoil) {
    json file = golden_file("gpt2");
    spoil(file);
    return file.dump();
  };
  for (const std::string& text :
       {change([&](json& file) { file["model"]["merges"] = {word + " z"}; }),
        change([&](json& file) { file["model"]["merges"] = {word}; }),
        change([&](json& file) { file["model"]["type"] = word; }),
        change([&](json& file) { file["model"]["vocab"][word] = -1; }),
        change([&](json& file) { file["model"]["vocab"]["zz"] = word; }), change([&](json& file) {
          file["pre_tokenizer"] = {
              {"type", "Split"}, {"pattern", {{"Regex", "(" + word}}}, {"behavior", "Isolated"}};
        })}) {
    try {
      Tokenizer::parse(text, "t");
      ADD_FAILURE() << text.substr(0, 200);
    } catch (const Error& error) {
      EXPECT_LT(std::string_view(error.what()).size(), 300u);
    }
  }
}

TEST(TokenizerFolder, KnowsTheClassOfVocabAndMerges) {
  const test::TempDir folder;
  const json file = golden_file("qwen2");
  write_vocab_and_merges(folder, file);
  json config = {{"tokenizer_class", "Qwen2Tokenizer"}, {"eos_token", "<|im_end|>"}};
  for (const json& token : file.at("added_tokens"))
    config["added_tokens_decoder"][std::to_string(token.at("id").get<int>())] = token;
  folder.write("tokenizer_config.json", config.dump());
  const Tokenizer tokenizer = Tokenizer::open(folder.path());
  const std::string text = "e\u0301 123 I'LL <|im_start|> go <both> x";
  for (const bool special : {false, true}) {
    EXPECT_EQ(tokenizer.encode(text, {special, special}),
              golden_tokenizer("qwen2").encode(text, {special, special}));
  }
  EXPECT_EQ(tokenizer.eos(), tokenizer.id_of("<|im_end|>"));
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "CLIPTokenizer"})");
  expect_error(ErrorKind::data, {"CLIPTokenizer", "tokenizer_config.json"},
               [&] { Tokenizer::open(folder.path()); });
}

TEST(TokenizerFolder, FindsBosEosAndPad) {
  const test::TempDir folder;
  folder.write("tokenizer.json", golden_file("llama3").dump());
  const auto id = [&](const char* text) { return golden_tokenizer("llama3").id_of(text); };
  const auto open = [&] { return Tokenizer::open(folder.path()); };
  EXPECT_EQ(open().eos(), id("<|endoftext|>"));  // by its name
  EXPECT_EQ(open().bos(), std::nullopt);
  folder.write("config.json", json({{"eos_token_id", *id("<|eot_id|>")}, {"pad_token_id", nullptr}}).dump());
  EXPECT_EQ(open().eos(), id("<|eot_id|>"));
  folder.write("generation_config.json",
               json({{"bos_token_id", *id("<|begin_of_text|>")},
                     {"eos_token_id", {*id("<|endoftext|>"), *id("<|eot_id|>"), 99999}}})
                   .dump());
  EXPECT_EQ(open().eos(), id("<|endoftext|>"));
  EXPECT_EQ(open().bos(), id("<|begin_of_text|>"));
  folder.write("special_tokens_map.json", R"({"pad_token": {"content": "<|endoftext|>", "lstrip": false}})");
  EXPECT_EQ(open().pad(), id("<|endoftext|>"));
  folder.write("tokenizer_config.json", R"({"bos_token": null, "eos_token": {"content": "<|eot_id|>"}})");
  const Tokenizer tokenizer = open();
  EXPECT_EQ(tokenizer.eos(), id("<|eot_id|>"));
  const std::vector<int32_t> stops(tokenizer.stops().begin(), tokenizer.stops().end());
  EXPECT_EQ(stops, (std::vector<int32_t>{*id("<|eot_id|>"), *id("<|endoftext|>")}));
  EXPECT_TRUE(tokenizer.is_special(*tokenizer.eos()));
  EXPECT_FALSE(tokenizer.is_special(*tokenizer.id_of("a")));
  EXPECT_FALSE(tokenizer.is_special(-1));
}

TEST(TokenizerFolder, NamesBrokenFiles) {
  const test::TempDir folder;
  folder.write("tokenizer.json", "{");
  expect_error(ErrorKind::data, {"tokenizer.json"}, [&] { Tokenizer::open(folder.path()); });
  folder.write("tokenizer.json", byte_tokenizer_json(257));
  folder.write("generation_config.json", "[1");
  expect_error(ErrorKind::data, {"generation_config.json"}, [&] { Tokenizer::open(folder.path()); });
  for (const char* odd : {"[]", "3", R"({"eos_token_id": "x", "bos_token_id": [null, -4, 1e99]})"}) {
    for (const char* name :
         {"generation_config.json", "config.json", "tokenizer_config.json", "special_tokens_map.json"}) {
      folder.write(name, odd);
    }
    EXPECT_EQ(Tokenizer::open(folder.path()).eos(), 256);
  }
}

}  // namespace
}  // namespace zeno::data
