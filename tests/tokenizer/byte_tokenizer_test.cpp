#include "zeno/data/tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace zeno::data {
namespace {

using nlohmann::json;
using test::expect_error;

json fresh() { return json::parse(byte_tokenizer_json(300)); }
Tokenizer parse(const json& root) { return Tokenizer::parse(root.dump(), "tokenizer.json"); }

std::string all_bytes() {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text += char(byte);
  return text;
}

TEST(ByteTokenizer, RoundTripsEveryByte) {
  const Tokenizer tokenizer = parse(fresh());
  const std::vector<int32_t> ids = tokenizer.encode(all_bytes());
  EXPECT_EQ(std::set(ids.begin(), ids.end()).size(), 256u);
  EXPECT_EQ(tokenizer.decode(ids), all_bytes());
  EXPECT_EQ(tokenizer.eos(), 256);
  EXPECT_EQ(tokenizer.vocab_size(), 259);
  EXPECT_TRUE(tokenizer.encode("").empty());
}

TEST(ByteTokenizer, FollowsTheByteTableOfGpt2) {
  const json vocab = fresh().at("model").at("vocab");
  EXPECT_EQ(vocab.at("A"), 'A');
  EXPECT_EQ(vocab.at("\u0120"), ' ');   // the well-known G with a dot
  EXPECT_EQ(vocab.at("\u010a"), '\n');  // C with a dot
  EXPECT_EQ(vocab.at("\u0100"), 0);
  EXPECT_EQ(vocab.at("\u0121"), 0x7f);
  EXPECT_EQ(vocab.at("\u0142"), 0xa0);
  EXPECT_EQ(vocab.at("\u0143"), 0xad);
  EXPECT_EQ(vocab.at("\u00ff"), 0xff);
}

TEST(ByteTokenizer, UsesTheIdsOfTheFile) {
  json root = fresh();
  for (auto& id : root["model"]["vocab"]) id = 255 - id.get<int>();
  const Tokenizer tokenizer = parse(root);
  EXPECT_EQ(tokenizer.encode("A"), std::vector<int32_t>{255 - 'A'});
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(all_bytes())), all_bytes());
}

TEST(ByteTokenizer, TextNeverProducesASpecialToken) {
  const Tokenizer tokenizer = parse(fresh());
  EXPECT_EQ(tokenizer.encode("<|endoftext|>").size(), 13u);
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{'h', 'i', 256}), "hi<|endoftext|>");
}

TEST(ByteTokenizer, FindsTheEos) {
  json root = fresh();
  root["added_tokens"] = {{{"id", 256}, {"content", "<pad>"}},
                          {{"id", 257}, {"content", "</s>"}},
                          {{"id", 258}, {"content", "<|endoftext|>"}}};
  EXPECT_EQ(parse(root).eos(), 258);
  root["added_tokens"].erase(2);
  EXPECT_EQ(parse(root).eos(), 257);
  root["added_tokens"].erase(1);
  EXPECT_EQ(parse(root).eos(), std::nullopt);
  root["model"]["vocab"]["<|endoftext|>"] = 400;  // listed in both places
  root["added_tokens"].push_back({{"id", 400}, {"content", "<|endoftext|>"}});
  EXPECT_EQ(parse(root).eos(), 400);
  EXPECT_EQ(parse(root).vocab_size(), 401);
}

TEST(ByteTokenizer, SmallVocabulariesHaveNoEos) {
  EXPECT_EQ(Tokenizer::parse(byte_tokenizer_json(256), "t").eos(), std::nullopt);
  expect_error(ErrorKind::usage, {"255", "256"}, [] { byte_tokenizer_json(255); });
}

TEST(ByteTokenizer, OpensAFolder) {
  const test::TempDir folder;
  expect_error(ErrorKind::data, {"tokenizer.json", "no such file", "token file"},
               [&] { Tokenizer::open(folder.path()); });
  folder.write("tokenizer.json", byte_tokenizer_json(257));
  EXPECT_EQ(Tokenizer::open(folder.path()).vocab_size(), 257);
}

TEST(ByteTokenizer, RefusesWhatItDoesNotKnow) {
  const auto refused = [](const char* what, const char* place, json root) {
    expect_error(ErrorKind::data, {what, place, "tokenizer.json"}, [&] { parse(root); });
  };
  json root = fresh();
  root["model"]["merges"] = {"a b"};
  refused("'ab'", "merges[0]", root);
  root["model"]["merges"] = {"a b c"};
  refused("'a b c'", "model.merges[0]", root);
  root["model"]["merges"] = json::array({json::array({"a", "b", "c"})});
  refused("3 parts", "model.merges[0]", root);
  root = fresh();
  root["model"]["type"] = "Markov";
  refused("Markov", "model", root);
  root = fresh();
  root["model"]["dropout"] = 0.1;
  refused("dropout", "model.dropout", root);
  root = fresh();
  root["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Rot13"}}}}};
  refused("Rot13", "normalizer.normalizers[1]", root);
  root = fresh();
  root["pre_tokenizer"] = {{"type", "UnicodeScripts"}};
  refused("UnicodeScripts", "pre_tokenizer", root);
  root["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "[a[b]]"}}}, {"behavior", "Isolated"}};
  refused("a set inside a set", "pre_tokenizer.pattern.Regex", root);
  root["pre_tokenizer"]["pattern"]["Regex"] = "(";
  refused("parenthesis", "pre_tokenizer.pattern.Regex", root);
  root["pre_tokenizer"]["pattern"]["Regex"] = "x";
  root["pre_tokenizer"]["behavior"] = "Sideways";
  refused("Sideways", "pre_tokenizer.behavior", root);
  root = fresh();
  root["post_processor"] = {{"type", "Stamp"}};
  refused("Stamp", "post_processor", root);
  root = fresh();
  root["decoder"] = {{"type", "CTC"}};
  refused("CTC", "decoder", root);
}

TEST(ByteTokenizer, RefusesMalformedFiles) {
  const auto refused = [](const char* what, const std::string& text) {
    expect_error(ErrorKind::data, {what, "some/tokenizer.json"},
                 [&] { Tokenizer::parse(text, "some/tokenizer.json"); });
  };
  const std::string good = byte_tokenizer_json(300);
  refused("not a tokenizer.json", "");
  refused("not a tokenizer.json", good.substr(0, good.size() / 2));
  refused("expected an object", "[]");
  refused("no 'model'", "{}");
  refused("model: got 3", R"({"model": 3})");
  refused("no 'vocab'", R"({"model": {"type": "BPE"}})");
  refused("no type", R"({"model": {"vocab": {"a": 0}}})");
  refused("no type", R"({"model": {"merges": []}})");
  refused("model.type: got 7", R"({"model": {"type": 7}})");
  refused("array", R"({"model": {"type": "BPE", "vocab": []}})");
  const auto with_id = [](json id) {
    json root = fresh();
    root["model"]["vocab"]["A"] = std::move(id);
    return root.dump();
  };
  refused("got id -1", with_id(-1));
  refused("got id 1.5", with_id(1.5));
  refused("got id 99999999999", with_id(99999999999));
  refused("got id \"x\"", with_id("x"));
  refused("two tokens with id 66", with_id('B'));
  json root = fresh();
  root["added_tokens"] = {{{"id", 65}, {"content", "<x>"}}};
  refused("two tokens with id 65", root.dump());
  root["added_tokens"] = {{{"id", 300}, {"content", "A"}}};
  refused("got ids 65 and 300", root.dump());
  root["added_tokens"] = {{{"content", "<x>"}}};
  refused("added_tokens[0]: got no 'id'", root.dump());
}

TEST(ByteTokenizer, DecodeRefusesUnknownIds) {
  const Tokenizer tokenizer = parse(fresh());
  expect_error(ErrorKind::data, {"259"}, [&] { tokenizer.decode(std::vector<int32_t>{259}); });
  expect_error(ErrorKind::data, {"-1"}, [&] { tokenizer.decode(std::vector<int32_t>{-1}); });
}

}  // namespace
}  // namespace zeno::data
