#include "zeno/train/file_digest.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"
#include "zeno/checkpoint/safetensors_writer.h"

namespace zeno::train {
namespace {

TEST(FileDigest, SmallGroupsAreReadWholeAndLargeOnesShareABudget) {
  EXPECT_TRUE(digest_rule(1 << 20, 100).whole);
  const DigestRule one = digest_rule(uint64_t(16) << 30, 1), many = digest_rule(uint64_t(16) << 30, 10'000);
  EXPECT_FALSE(one.whole);
  EXPECT_EQ(one.samples, 64u);
  EXPECT_EQ(many.samples, 4u);
}

TEST(FileDigest, SaysSizeAndSeesEveryByteOfASmallFile) {
  const test::TempDir folder;
  std::string text(100'000, 'x');
  const Path path = folder.write("a", text);
  const std::string before = digest_file(path, {});
  EXPECT_EQ(before.find("100,000 bytes (hash "), 0u) << before;
  EXPECT_EQ(digest_file(folder.write("b", text), {}), before);
  for (const size_t at : {size_t(0), size_t(54'321), text.size() - 1}) {
    text[at] = 'y';
    EXPECT_NE(digest_file(folder.write("b", text), {}), before) << at;
    text[at] = 'x';
  }
  EXPECT_EQ(digest_file(folder.path() / "none", {}), "no such file");
  EXPECT_EQ(digest_file(folder.write("empty", ""), {.whole = false, .samples = 4}).find("0 bytes"), 0u);
}

TEST(FileDigest, StopsWhenAskedTo) {
  const test::TempDir folder;
  const Path path = folder.write("a", "text");
  std::stop_source stop;
  EXPECT_EQ(digest_file(path, {}, stop.get_token()), digest_file(path, {}));
  stop.request_stop();
  test::expect_error(ErrorKind::io, {path.string(), "cancelled"},
                     [&] { digest_file(path, {}, stop.get_token()); });
}

TEST(FileDigest, SamplesSeeBothEndsASizeAndAStretch) {
  const test::TempDir folder;
  std::string text(1 << 20, 'x');
  const DigestRule rule{.whole = false, .samples = 8};
  const std::string before = digest_file(folder.write("a", text), rule);
  for (const size_t at : {size_t(0), text.size() - 1, text.size() / 2}) {
    std::string other = text;
    other.replace(at, std::min<size_t>(text.size() / 8, text.size() - at),
                  std::min<size_t>(text.size() / 8, text.size() - at), 'y');
    EXPECT_NE(digest_file(folder.write("b", other), rule), before) << at;
  }
  EXPECT_NE(digest_file(folder.write("b", text + "x"), rule), before);
}

TEST(FileDigest, SeesEveryTensorThatChanged) {
  constexpr int kTensors = 40;
  constexpr int64_t kValues = 9000;
  const test::TempDir folder;
  const auto digest = [&](int changed) {
    std::vector<checkpoint::TensorSource> tensors;
    for (int i = 0; i < kTensors; ++i) {
      tensors.push_back(
          {{.name = fmt::format("t{}", i), .dtype = DType::f32, .shape = {kValues}},
           [=](uint64_t, std::span<std::byte> out) { std::ranges::fill(out, std::byte(i == changed)); }});
    }
    const Path path = folder.path() / "model.safetensors";
    write_safetensors(path, tensors);
    return digest_file(path, {.whole = false, .samples = 4});
  };
  const std::string before = digest(-1);
  for (int i = 0; i < kTensors; ++i) EXPECT_NE(digest(i), before) << i;
}

}  // namespace
}  // namespace zeno::train
