#include "zeno/data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace zeno::data {
namespace {

using test::expect_error;
using Ids = std::vector<int32_t>;

TokenSource source_of(const Ids& tokens, std::optional<int32_t> eos) {
  const test::TempDir folder;  // the mapping outlives the name
  const std::vector<Path> paths{folder.path() / "t.zt"};
  write_token_file(paths[0], {.vocab_size = 100, .eos = eos}, tokens);
  return TokenSource::open(paths, 100, nullptr);
}

TokenSource generated(int64_t tokens, int64_t document_tokens = 37) {
  return TokenSource::generated(
      {.vocab_size = 50, .tokens = tokens, .document_tokens = document_tokens, .seed = 11, .eos = 49});
}

TEST(Loader, CutsWindowsAndKeepsDocumentsApart) {
  const TokenSource source = source_of({1, 2, 0, 3, 0, 4, 5, 6, 7, 0, 8, 9}, 0);
  const Loader loader(source, {.seq_len = 5, .micro_batch = 2, .shuffle = false});
  EXPECT_EQ(loader.sequences(), 2);
  EXPECT_EQ(loader.steps_per_epoch(), 1);
  const std::vector<HostBatch> batches = loader.step(0);
  ASSERT_EQ(batches.size(), 1u);
  const HostBatch& batch = batches[0];
  EXPECT_EQ(batch.batch, 2);
  EXPECT_EQ(batch.seq, 5);
  EXPECT_EQ(batch.tokens, (Ids{1, 2, 0, 3, 0, /**/ 4, 5, 6, 7, 0}));
  EXPECT_EQ(batch.targets, (Ids{2, 0, -1, 0, -1, /**/ 5, 6, 7, 0, -1}));
  EXPECT_EQ(batch.positions, (Ids{0, 1, 2, 0, 1, /**/ 0, 1, 2, 3, 4}));
  EXPECT_EQ(batch.doc_start, (Ids{0, 0, 0, 3, 3, /**/ 0, 0, 0, 0, 0}));
  EXPECT_EQ(batch.valid_rows, (Ids{0, 1, 3, 5, 6, 7, 8}));
}

TEST(Loader, ADocumentCutByAWindowStartsAnew) {
  const TokenSource source = source_of({1, 2, 3, 4, 0, 5, 6, 7, 8}, 0);
  const Loader loader(source, {.seq_len = 4, .micro_batch = 2, .shuffle = false});
  const HostBatch batch = loader.step(0)[0];
  EXPECT_EQ(batch.targets, (Ids{2, 3, 4, 0, /**/ -1, 6, 7, 8}));
  EXPECT_EQ(batch.positions, (Ids{0, 1, 2, 3, /**/ 0, 0, 1, 2}));
  EXPECT_EQ(batch.doc_start, (Ids{0, 0, 0, 0, /**/ 0, 1, 1, 1}));
}

TEST(Loader, CanLetDocumentsFlowTogether) {
  const TokenSource source = source_of({1, 2, 0, 3, 0, 4, 5}, 0);
  const Loader loader(source, {.seq_len = 6, .shuffle = false, .separate_documents = false});
  const HostBatch batch = loader.step(0)[0];
  EXPECT_EQ(batch.tokens, (Ids{1, 2, 0, 3, 0, 4}));
  EXPECT_EQ(batch.targets, (Ids{2, 0, 3, 0, 4, 5}));
  EXPECT_EQ(batch.positions, (Ids{0, 1, 2, 3, 4, 5}));
  EXPECT_TRUE(batch.doc_start.empty());
  EXPECT_EQ(batch.valid_rows.size(), 6u);
}

TEST(Loader, WithoutEosTheLastTokenOfADocumentHasNoTarget) {
  const TokenSource source =
      TokenSource::generated({.vocab_size = 9, .tokens = 13, .document_tokens = 4, .seed = 0, .eos = {}});
  const HostBatch batch = Loader(source, {.seq_len = 12, .shuffle = false}).step(0)[0];
  for (int32_t row = 0; row < 12; ++row) EXPECT_EQ(batch.targets[size_t(row)] == -1, row % 4 == 3);
}

// Properties that hold for any data and shape, by brute force from the stream.
TEST(Loader, RowsFollowFromTheStream) {
  for (const int64_t document : {2, 5, 37, 1000}) {
    const TokenSource source = generated(700, document);
    Ids stream(700);
    source.copy(0, stream);
    for (const int64_t T : {1, 2, 7, 64, 699}) {
      const Loader loader(source, {.seq_len = T, .shuffle = false});
      ASSERT_EQ(loader.sequences(), 699 / T);
      for (int64_t s = 0; s < loader.sequences(); ++s) {
        const HostBatch batch = loader.step(s)[0];
        int32_t start = 0;
        for (int64_t t = 0; t < T; ++t) {
          const int64_t at = s * T + t;
          if (at % document == 0) start = int32_t(t);
          const bool last = (at + 1) % document == 0;
          const size_t i = size_t(t);
          ASSERT_EQ(batch.tokens[i], stream[size_t(at)]);
          ASSERT_EQ(batch.targets[i], last ? -1 : stream[size_t(at) + 1]);
          ASSERT_EQ(batch.doc_start[i], start);
          ASSERT_EQ(batch.positions[i], int32_t(t) - start);
          ASSERT_EQ(std::ranges::binary_search(batch.valid_rows, int32_t(t)), !last);
        }
      }
    }
  }
}

TEST(Loader, TheGlobalBatchIsTheSameAtEveryWorldSize) {
  const TokenSource source = generated(3000);
  for (const int64_t logical : {8, 24}) {
    LoaderOptions options{.seq_len = 16, .micro_batch = 3, .grad_accum = logical, .seed = 5};
    const Loader alone(source, options);
    for (const int world : {2, 4, 8}) {
      for (const int64_t step : {0, 1, 2, 9, 1000}) {
        std::vector<HostBatch> together;
        for (int rank = 0; rank < world; ++rank) {
          options.grad_accum = logical / world;
          options.world = world;
          options.rank = rank;
          const Loader loader(source, options);
          ASSERT_EQ(loader.steps_per_epoch(), alone.steps_per_epoch());
          for (HostBatch& batch : loader.step(step)) together.push_back(std::move(batch));
        }
        ASSERT_EQ(together, alone.step(step)) << "world " << world << ", step " << step;
      }
    }
  }
}

TEST(Loader, AnEpochVisitsEverySequenceOnce) {
  const TokenSource source = generated(16 * 24 + 1);
  const Loader loader(source, {.seq_len = 16, .micro_batch = 2, .grad_accum = 3, .seed = 2});
  ASSERT_EQ(loader.sequences(), 24);
  ASSERT_EQ(loader.steps_per_epoch(), 4);
  std::vector<Ids> orders;
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    Ids order;
    std::set<Ids> seen;
    for (int64_t step = 0; step < 4; ++step) {
      for (const HostBatch& batch : loader.step(epoch * 4 + step)) {
        for (int64_t row = 0; row < 2; ++row) {
          seen.insert(Ids(batch.tokens.begin() + row * 16, batch.tokens.begin() + (row + 1) * 16));
        }
        order.insert(order.end(), batch.tokens.begin(), batch.tokens.end());
      }
    }
    EXPECT_EQ(seen.size(), 24u);
    orders.push_back(order);
  }
  EXPECT_NE(orders[0], orders[1]);
}

TEST(Loader, ShortDataRepeatsWithinAStepWithAWarning) {
  const TokenSource source = generated(3 * 8 + 1);
  ::testing::internal::CaptureStderr();
  const Loader loader(source, {.seq_len = 8, .micro_batch = 4, .grad_accum = 2, .shuffle = false});
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("3 sequences"), std::string::npos) << log;
  EXPECT_NE(log.find("65 tokens"), std::string::npos) << log;
  EXPECT_EQ(loader.steps_per_epoch(), 1);
  const std::vector<HostBatch> batches = loader.step(0);
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_TRUE(
      std::equal(batches[0].tokens.begin(), batches[0].tokens.begin() + 8, batches[0].tokens.begin() + 24));
}

TEST(Loader, SaysHowMuchDataIsMissing) {
  const TokenSource source = generated(16);
  expect_error(ErrorKind::data, {"16 tokens", "at least 17", "sequence of 16"},
               [&] { Loader(source, {.seq_len = 16}); });
  EXPECT_EQ(Loader(source, {.seq_len = 15}).sequences(), 1);
  expect_error(ErrorKind::data, {"1 tokens", "at least 2"}, [] {
    const TokenSource one = generated(1);
    Loader(one, {.seq_len = 1});
  });
}

TEST(Loader, RefusesNonsense) {
  const TokenSource source = generated(100);
  const auto refused = [&](ErrorKind kind, const LoaderOptions& options) {
    expect_error(kind, {"[loader]"}, [&] { Loader(source, options); });
  };
  refused(ErrorKind::usage, {.seq_len = 0});
  refused(ErrorKind::usage, {.seq_len = 4, .micro_batch = 0});
  refused(ErrorKind::usage, {.seq_len = 4, .grad_accum = -1});
  refused(ErrorKind::usage, {.seq_len = 1 << 20, .micro_batch = 1 << 20});
  refused(ErrorKind::internal, {.seq_len = 4, .rank = 2, .world = 2});
  const Loader loader(source, {.seq_len = 4});
  expect_error(ErrorKind::internal, {"step -1"}, [&] { loader.step(-1); });
}

}  // namespace
}  // namespace zeno::data
