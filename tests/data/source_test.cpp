#include "zeno/data/source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"
#include "zeno/data/dataset/prepare.h"
#include "zeno/data/tokenizer.h"

namespace zeno::data {
namespace {

using test::expect_error;
using test::TempDir;

DatasetSpec spec_of(const TempDir& folder, const std::vector<Path>& paths, int64_t vocab) {
  const Path model = folder.path() / "model";
  std::filesystem::create_directories(model);
  folder.write("model/tokenizer.json", byte_tokenizer_json(std::min<int64_t>(vocab, 257)));
  return {.paths = paths, .model = model, .cache = folder.path() / "cache", .vocab_size = vocab};
}

TokenSource open(const TempDir& folder, const std::vector<Path>& paths, int64_t vocab = 257) {
  const DatasetSpec spec = spec_of(folder, paths, vocab);
  prepare_dataset(spec, {}, 1);
  return TokenSource::open(spec);
}

std::vector<int32_t> all(const TokenSource& source) {
  std::vector<int32_t> tokens(size_t(source.tokens()));
  source.copy(0, tokens);
  return tokens;
}
std::vector<int64_t> starts(const TokenSource& source) {
  return {source.document_starts().begin(), source.document_starts().end()};
}

TEST(TokenSource, TextIsOneDocumentPerFile) {
  const TempDir folder;
  const TokenSource source = open(folder, {folder.write("a.txt", "ab\n\nc"), folder.write("b", "d")});
  EXPECT_EQ(all(source), (std::vector<int32_t>{'a', 'b', '\n', '\n', 'c', 256, 'd', 256}));
  EXPECT_EQ(starts(source), (std::vector<int64_t>{0, 6, 8}));
  EXPECT_EQ(source.host_bytes(), 0u);  // all mapped
  EXPECT_TRUE(source.whole_texts());
  EXPECT_EQ(source.origin(1), (folder.path() / "b").string());
}

TEST(TokenSource, TextWithoutEosIsStillApart) {
  const TempDir folder;
  const TokenSource source = open(folder, {folder.write("a", "ab"), folder.write("b", "c")}, 256);
  EXPECT_EQ(all(source), (std::vector<int32_t>{'a', 'b', 'c'}));
  EXPECT_EQ(starts(source), (std::vector<int64_t>{0, 2, 3}));
}

TEST(TokenSource, FoldersAreReadInOrderOfNames) {
  const TempDir folder;
  std::filesystem::create_directories(folder.path() / "in/b");
  folder.write("in/c.txt", "3");
  folder.write("in/b/z.md", "2");
  folder.write("in/a.txt", "1");
  folder.write("in/.hidden", "x");
  folder.write("in/d.jsonl", "{\"text\": \"4\"}");
  const TokenSource source = open(folder, {folder.path() / "in"});
  EXPECT_EQ(all(source), (std::vector<int32_t>{'1', 256, '2', 256, '3', 256, '4', 256}));
  EXPECT_FALSE(source.whole_texts());
}

TEST(TokenSource, TokenFilesAreCutAtEos) {
  const TempDir folder;
  const Path path = folder.path() / "tokens.bin";  // known by its magic, not its name
  write_token_file(path, {.vocab_size = 10, .eos = 0}, std::vector<int32_t>{1, 2, 0, 3, 0, 0, 4, 0});
  EXPECT_EQ(starts(open(folder, {path})), (std::vector<int64_t>{0, 3, 5, 6, 8}));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "cache"));  // mapped as it is
  write_token_file(path, {.vocab_size = 10, .eos = {}}, std::vector<int32_t>{1, 2, 0, 3, 0});
  EXPECT_EQ(starts(open(folder, {path})), (std::vector<int64_t>{0, 5}));
}

TEST(TokenSource, CopyCrossesParts) {
  const TempDir folder;
  const Path tokens = folder.path() / "t.zt";
  write_token_file(tokens, {.vocab_size = 70000, .eos = {}}, std::vector<int32_t>{7, 8, 9});
  const TokenSource source = open(
      folder, {folder.write("a", "ab"), tokens, folder.write("empty", ""), folder.write("c", "cd"), tokens});
  const std::vector<int32_t> expected{'a', 'b', 256, 'c', 'd', 256, 7, 8, 9, 7, 8, 9};
  ASSERT_EQ(all(source), expected);
  EXPECT_EQ(starts(source), (std::vector<int64_t>{0, 3, 6, 9, 12}));
  for (size_t begin = 0; begin <= expected.size(); ++begin) {
    for (size_t end = begin; end <= expected.size(); ++end) {
      std::vector<int32_t> out(end - begin);
      source.copy(int64_t(begin), out);
      EXPECT_EQ(out,
                std::vector<int32_t>(expected.begin() + int64_t(begin), expected.begin() + int64_t(end)));
      std::vector<uint8_t> learned(end - begin);
      source.copy_learned(int64_t(begin), learned);
      EXPECT_EQ(learned, std::vector<uint8_t>(end - begin, 1));
    }
  }
  EXPECT_EQ(source.origin(3), tokens.string() + ", document 0");
  std::vector<int32_t> out(2);
  expect_error(ErrorKind::internal, {"11+2"}, [&] { source.copy(11, out); });
}

TEST(TokenSource, NamesIdsBeyondTheVocabulary) {
  const TempDir folder;
  const Path path = folder.path() / "a.zt";
  for (const int64_t vocab : {60000, 100000}) {  // both widths
    write_token_file(path, {.vocab_size = vocab, .eos = {}}, std::vector<int32_t>{1, 2, 499, 500, 3, 501});
    expect_error(ErrorKind::data, {"a.zt", "position 3", "id 500", "vocabulary size 500"},
                 [&] { open(folder, {path}, 500); });
    EXPECT_EQ(open(folder, {path}, 502).tokens(), 6);
  }
}

TEST(TokenSource, RefusesWhatItCannotRead) {
  const TempDir folder;
  const auto refused = [&](ErrorKind kind, std::vector<std::string> parts, const std::vector<Path>& paths) {
    expect_error(kind, parts, [&] { open(folder, paths); });
  };
  refused(ErrorKind::usage, {"--data"}, {});
  refused(ErrorKind::data, {"none.txt", "no such file"}, {folder.path() / "none.txt"});
  std::filesystem::create_directories(folder.path() / "hollow");
  refused(ErrorKind::data, {"hollow", "empty folder"}, {folder.path() / "hollow"});
  refused(ErrorKind::data, {"chat.json:1", "unknown format"}, {folder.write("chat.json", "{}")});
  refused(ErrorKind::data, {"x.bin", "zero byte at 2"}, {folder.write("x.bin", std::string("PA\0R", 4))});
  refused(ErrorKind::data, {"bad.zt", "wrong magic"}, {folder.write("bad.zt", "text in a .zt file")});
  refused(ErrorKind::data, {"empty", "no samples"}, {folder.write("empty", "")});
  const DatasetSpec spec{.paths = {folder.write("a.txt", "a")},
                         .model = folder.path() / "elsewhere",
                         .cache = folder.path() / "cache",
                         .vocab_size = 257};
  expect_error(ErrorKind::usage, {"elsewhere", "tokenizer"}, [&] { prepare_dataset(spec); });
}

TEST(GeneratedSource, IsAFunctionOfTheSeed) {
  const GeneratedData options{.vocab_size = 64, .tokens = 5000, .document_tokens = 100, .seed = 3, .eos = 7};
  const TokenSource source = TokenSource::generated(options);
  const std::vector<int32_t> tokens = all(source);
  EXPECT_EQ(tokens, all(TokenSource::generated(options)));
  GeneratedData other = options;
  other.seed = 4;
  EXPECT_NE(tokens, all(TokenSource::generated(other)));
  // More of the same data begins with the same data.
  other = options;
  other.tokens = 8000;
  std::vector<int32_t> longer = all(TokenSource::generated(other));
  longer.resize(tokens.size());
  EXPECT_EQ(tokens, longer);
  ASSERT_EQ(source.documents(), 50);
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(tokens[i] == 7, i % 100 == 99) << i;
    EXPECT_TRUE(tokens[i] >= 0 && tokens[i] < 64);
  }
}

// Bits per token when the last `order` tokens are known, estimated on the data itself.
double conditional_entropy(const std::vector<int32_t>& tokens, size_t order) {
  std::map<std::vector<int32_t>, double> contexts, events;
  for (size_t i = order; i < tokens.size(); ++i) {
    std::vector<int32_t> key(tokens.begin() + int64_t(i - order), tokens.begin() + int64_t(i));
    ++contexts[key];
    key.push_back(tokens[i]);
    ++events[key];
  }
  double bits = 0;
  for (const auto& [key, n] : events) {
    bits -= n * std::log2(n / contexts[std::vector<int32_t>(key.begin(), key.end() - 1)]);
  }
  return bits / double(tokens.size() - order);
}

TEST(GeneratedSource, EachOrderHasSomethingToLearn) {
  const std::vector<int32_t> tokens = all(TokenSource::generated(
      {.vocab_size = 16, .tokens = 200000, .document_tokens = 1000, .seed = 1, .eos = {}}));
  const double h0 = conditional_entropy(tokens, 0);
  const double h1 = conditional_entropy(tokens, 1);
  const double h2 = conditional_entropy(tokens, 2);
  EXPECT_LT(h0, 4.0);
  EXPECT_LT(h1, h0 - 0.5);
  EXPECT_LT(h2, h1 - 0.5);
  EXPECT_GT(h2, 0.8);  // the noise cannot be learned
}

TEST(GeneratedSource, RefusesNonsense) {
  const auto refused = [](const char* part, const GeneratedData& options) {
    expect_error(ErrorKind::usage, {part}, [&] { TokenSource::generated(options); });
  };
  refused("vocabulary of 1", {.vocab_size = 1, .tokens = 10, .eos = {}});
  refused("vocabulary of 2", {.vocab_size = 2, .tokens = 10, .eos = 0});
  refused("0 tokens", {.vocab_size = 9, .tokens = 0, .eos = {}});
  refused("documents of 1", {.vocab_size = 9, .tokens = 5, .document_tokens = 1, .eos = {}});
  refused("eos id 9", {.vocab_size = 9, .tokens = 5, .eos = 9});
}

}  // namespace
}  // namespace zeno::data
