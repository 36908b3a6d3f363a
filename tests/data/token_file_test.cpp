#include "zeno/data/token_file.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <numeric>
#include <vector>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace zeno::data {
namespace {

using test::expect_error;
using test::TempDir;

std::vector<int32_t> read_all(const Path& path) {
  const TokenFile file(path);
  std::vector<int32_t> tokens(size_t(file.count()));
  file.copy(0, tokens);
  return tokens;
}

TEST(TokenFile, RoundTripsBothWidths) {
  const TempDir folder;
  const Path path = folder.path() / "a.zt";
  for (const int64_t vocab : {100, 65536, 65537, 1 << 20}) {
    for (const size_t count : {0, 1, 1000, 300000}) {
      std::vector<int32_t> tokens(count);
      for (size_t i = 0; i < count; ++i) tokens[i] = int32_t(int64_t(i) * 7919 % vocab);
      if (count) tokens.back() = int32_t(vocab - 1);
      write_token_file(path, {.vocab_size = vocab, .eos = 3}, tokens);
      EXPECT_EQ(read_all(path), tokens);
      EXPECT_EQ(std::filesystem::file_size(path), 64 + count * (vocab <= 65536 ? 2 : 4));
      EXPECT_EQ(TokenFile(path).vocab_size(), vocab);
      EXPECT_EQ(TokenFile(path).eos(), 3);
      EXPECT_TRUE(is_token_file(path));
    }
  }
  write_token_file(path, {.vocab_size = 10, .eos = {}}, std::vector<int32_t>{9});
  EXPECT_EQ(TokenFile(path).eos(), std::nullopt);
}

TEST(TokenFile, CopiesARange) {
  const TempDir folder;
  const Path path = folder.path() / "a.zt";
  std::vector<int32_t> tokens(50), out(7);
  std::iota(tokens.begin(), tokens.end(), 0);
  write_token_file(path, {.vocab_size = 50, .eos = {}}, tokens);
  const TokenFile file(path);
  file.copy(43, out);
  EXPECT_EQ(out, std::vector<int32_t>(tokens.begin() + 43, tokens.end()));
  expect_error(ErrorKind::internal, {"44"}, [&] { file.copy(44, out); });
}

TEST(TokenFile, LeavesTheOldFileWhenWritingFails) {
  struct FullDisk : FileSystem {
    ssize_t pwrite(int, const void*, size_t, off_t) override {
      errno = ENOSPC;
      return -1;
    }
  } full;
  const TempDir folder;
  const Path path = folder.path() / "a.zt";
  const std::vector<int32_t> tokens{1, 2, 3};
  write_token_file(path, {.vocab_size = 10, .eos = {}}, tokens);
  {
    const FileSystemOverride override(full);
    expect_error(ErrorKind::io, {"a.zt", "No space left"},
                 [&] { write_token_file(path, {.vocab_size = 10, .eos = {}}, std::vector<int32_t>{4}); });
  }
  EXPECT_EQ(read_all(path), tokens);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(TokenFile, WriterRefusesIdsOutsideTheVocabulary) {
  const TempDir folder;
  const Path path = folder.path() / "a.zt";
  const auto refused = [&](std::vector<std::string> parts, TokenFileInfo info, std::vector<int32_t> tokens) {
    expect_error(ErrorKind::data, parts, [&] { write_token_file(path, info, tokens); });
    EXPECT_FALSE(std::filesystem::exists(path));
  };
  refused({"token 1", "id 10", "0..9"}, {.vocab_size = 10, .eos = {}}, {0, 10});
  refused({"token 0", "id -1"}, {.vocab_size = 10, .eos = {}}, {-1});
  refused({"eos id 10"}, {.vocab_size = 10, .eos = 10}, {0});
  refused({"vocabulary of 0"}, {.vocab_size = 0, .eos = {}}, {});
}

class BrokenTokenFile : public ::testing::Test {
 protected:
  void SetUp() override {
    const Path path = folder_.path() / "good.zt";
    write_token_file(path, {.vocab_size = 10, .eos = 9}, std::vector<int32_t>{1, 2, 3, 4, 5});
    good_ = read_file(path);
  }
  template <class T>
  std::string with(size_t offset, T value) const {
    std::string bytes = good_;
    std::memcpy(bytes.data() + offset, &value, sizeof(value));
    return bytes;
  }
  void refused(const std::string& part, const std::string& bytes) const {
    const Path path = folder_.write("bad.zt", bytes);
    expect_error(ErrorKind::data, {part, "bad.zt"}, [&] { TokenFile{path}; });
  }
  TempDir folder_;
  std::string good_;
};

TEST_F(BrokenTokenFile, EveryTruncationIsRefused) {
  for (size_t length = 0; length < good_.size(); ++length) {
    refused(length < 8 ? "wrong magic" : "truncated", good_.substr(0, length));
  }
  refused("bytes after the header", good_ + "x");
  refused("bytes after the header", good_ + std::string(2, '\0'));
}

TEST_F(BrokenTokenFile, LyingHeadersAreRefused) {
  refused("wrong magic", with(0, 'X'));
  refused("version 2", with(8, uint32_t(2)));
  refused("width of 0", with(12, uint32_t(0)));
  refused("width of 3", with(12, uint32_t(3)));
  refused("truncated", with(12, uint32_t(4)));
  refused("vocabulary of 0", with(16, uint64_t(0)));
  refused("vocabulary of", with(16, ~uint64_t(0)));
  refused("truncated", with(24, ~uint64_t(0)));
  refused("truncated", with(24, (uint64_t(1) << 63) + 5));  // times the width, this is 10 again
  refused("bytes after the header", with(24, uint64_t(4)));
  refused("eos id 10", with(32, int64_t(10)));
  refused("eos id -2", with(32, int64_t(-2)));
}

TEST_F(BrokenTokenFile, KnowsOtherFiles) {
  EXPECT_FALSE(is_token_file(folder_.write("a.txt", "short")));
  EXPECT_FALSE(is_token_file(folder_.write("b.txt", "ZENOTOK2 and more")));
  expect_error(ErrorKind::io, {"missing.zt"}, [&] { TokenFile{folder_.path() / "missing.zt"}; });
}

}  // namespace
}  // namespace zeno::data
