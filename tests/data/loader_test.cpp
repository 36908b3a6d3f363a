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
  const Path path = folder.path() / "t.zt";
  write_token_file(path, {.vocab_size = 100, .eos = eos}, tokens);
  return TokenSource::open({.paths = {path}, .model = {}, .cache = {}, .vocab_size = 100});
}

TokenSource generated(int64_t tokens, int64_t document_tokens = 37) {
  return TokenSource::generated(
      {.vocab_size = 50, .tokens = tokens, .document_tokens = document_tokens, .seed = 11, .eos = 49});
}

TEST(Loader, CutsWindowsAndKeepsDocumentsApart) {
  const TokenSource source = source_of({1, 2, 0, 3, 0, 4, 5, 6, 7, 0, 8, 9}, 0);
  const SequenceTable table(source, {.seq_len = 5});
  const Loader loader(source, table, {.micro_batch = 2, .shuffle = false});
  EXPECT_EQ(loader.sequences(), 3);
  EXPECT_EQ(loader.steps_per_epoch(), 2);
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
  EXPECT_EQ(batch.filled, 10);

  // The rest of the stream, the rest of its window, and a place that no sequence is left for.
  const HostBatch tail = loader.step(1)[0];
  EXPECT_EQ(tail.tokens, (Ids{8, 9, 0, 0, 0, /**/ 0, 0, 0, 0, 0}));
  EXPECT_EQ(tail.targets, (Ids{9, -1, -1, -1, -1, /**/ -1, -1, -1, -1, -1}));
  EXPECT_EQ(tail.positions, (Ids{0, 1, 0, 1, 2, /**/ 0, 1, 2, 3, 4}));
  EXPECT_EQ(tail.doc_start, (Ids{0, 0, 2, 2, 2, /**/ 0, 0, 0, 0, 0}));
  EXPECT_EQ(tail.filled, 2);
}

TEST(Loader, ADocumentCutByAWindowStartsAnew) {
  const TokenSource source = source_of({1, 2, 3, 4, 0, 5, 6, 7, 8}, 0);
  const SequenceTable table(source, {.seq_len = 4});
  const Loader loader(source, table, {.micro_batch = 2, .shuffle = false});
  const HostBatch batch = loader.step(0)[0];
  EXPECT_EQ(batch.targets, (Ids{2, 3, 4, 0, /**/ -1, 6, 7, 8}));
  EXPECT_EQ(batch.positions, (Ids{0, 1, 2, 3, /**/ 0, 0, 1, 2}));
  EXPECT_EQ(batch.doc_start, (Ids{0, 0, 0, 0, /**/ 0, 1, 1, 1}));
}

// Each has its tokens, targets that reach into the next slice, and the documents of the whole sequences.
TEST(Loader, RanksThatShareSequencesHaveSlicesOfThem) {
  const TokenSource source = generated(700, 7);
  for (const int64_t length : {12, 36}) {
    const SequenceTable table(source, {.seq_len = length});
    for (const int slices : {1, 2, 3}) {
      const LoaderOptions options{.micro_batch = 2, .grad_accum = 2};
      const Loader loader(source, table, options);
      for (int64_t step = 0; step < loader.steps_per_epoch(); ++step) {
        const std::vector<HostBatch> whole = loader.step(step);
        int64_t filled = 0, valid = 0;
        for (int slice = 0; slice < slices; ++slice) {
          LoaderOptions own = options;
          own.slice = slice;
          own.slices = slices;
          const HostBatch mine = Loader(source, table, own).step(step)[1];
          ASSERT_EQ(mine.seq, length / slices);
          EXPECT_EQ(mine.doc_start, whole[1].doc_start);
          for (int64_t row = 0; row < 2 * mine.seq; ++row) {
            const auto there = size_t(row / mine.seq * length + slice * mine.seq + row % mine.seq);
            EXPECT_EQ(mine.tokens[size_t(row)], whole[1].tokens[there]);
            EXPECT_EQ(mine.targets[size_t(row)], whole[1].targets[there]);
            EXPECT_EQ(mine.positions[size_t(row)], whole[1].positions[there]);
          }
          filled += mine.filled;
          valid += int64_t(mine.valid_rows.size());
        }
        EXPECT_EQ(filled, whole[1].filled);
        EXPECT_EQ(valid, int64_t(whole[1].valid_rows.size()));
      }
    }
  }
}

TEST(Loader, WithoutEosTheLastTokenOfADocumentHasNoTarget) {
  const TokenSource source =
      TokenSource::generated({.vocab_size = 9, .tokens = 13, .document_tokens = 4, .seed = 0, .eos = {}});
  const SequenceTable table(source, {.seq_len = 12});
  const HostBatch batch = Loader(source, table, {.shuffle = false}).step(0)[0];
  for (int32_t row = 0; row < 12; ++row) EXPECT_EQ(batch.targets[size_t(row)] == -1, row % 4 == 3);
}

// Properties that hold for any data and shape, by brute force from the stream.
TEST(Loader, RowsFollowFromTheStream) {
  for (const int64_t document : {2, 5, 37, 1000}) {
    const TokenSource source = generated(700, document);
    Ids stream(700);
    source.copy(0, stream);
    for (const int64_t T : {1, 2, 7, 64, 699}) {
      const SequenceTable table(source, {.seq_len = T});
      const Loader loader(source, table, {.shuffle = false});
      ASSERT_EQ(loader.sequences(), (699 + T - 1) / T);
      for (int64_t s = 0; s < loader.sequences(); ++s) {
        const HostBatch batch = loader.step(s)[0];
        int32_t start = 0;
        for (int64_t t = 0; t < T && s * T + t < 700; ++t) {
          const int64_t at = s * T + t;
          if (at % document == 0) start = int32_t(t);
          const bool last = (at + 1) % document == 0 || at == 699;
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
    LoaderOptions options{.micro_batch = 3, .grad_accum = logical, .seed = 5};
    const SequenceTable table(source, {.seq_len = 16});
    const Loader alone(source, table, options);
    for (const int world : {2, 4, 8}) {
      for (const int64_t step : {0, 1, 2, 9, 1000}) {
        std::vector<HostBatch> together;
        for (int rank = 0; rank < world; ++rank) {
          options.grad_accum = logical / world;
          options.ranks = world;
          options.rank = rank;
          const Loader loader(source, table, options);
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
  const SequenceTable table(source, {.seq_len = 16});
  const Loader loader(source, table, {.micro_batch = 2, .grad_accum = 3, .seed = 2});
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

TEST(Loader, ShortDataIsPaddedWithAWarning) {
  const TokenSource source = generated(3 * 8 + 1);
  const SequenceTable table(source, {.seq_len = 8});
  ::testing::internal::CaptureStderr();
  const Loader loader(source, table, {.micro_batch = 4, .grad_accum = 2});
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("3 sequences"), std::string::npos) << log;
  EXPECT_EQ(loader.steps_per_epoch(), 1);
  const std::vector<HostBatch> batches = loader.step(0);
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches[0].filled, 24);
  EXPECT_EQ(batches[1].filled, 0);
  EXPECT_TRUE(batches[1].valid_rows.empty());
  EXPECT_EQ(loader.epochs_after(3), 3.0);
}

TEST(Loader, PaddingCostsLittleAttention) {
  const TokenSource source = TokenSource::of({{.ids = {1, 2}, .learned = {1, 1}}});
  for (const int64_t T : {3, 64, 100, 2048, 100000}) {
    const SequenceTable table(source, {.seq_len = T});
    const HostBatch batch = Loader(source, table, {}).step(0)[0];
    int64_t documents = 0, pairs = 0;
    for (int64_t t = 0; t < T; ++t) {
      const int32_t start = batch.doc_start[size_t(t)];
      documents += start == t;
      pairs += t - start + 1;
      ASSERT_EQ(batch.positions[size_t(t)], t - start);
      ASSERT_TRUE(t < 2 || start >= 2);  // no sample sees padding, no padding sees a sample
    }
    EXPECT_LE(documents, 9) << T;
    EXPECT_LE(pairs, std::max<int64_t>(T * 64, T * T / 14)) << T;
  }
}

TEST(Loader, RefusesNonsense) {
  const TokenSource source = generated(100);
  const auto refused = [&](ErrorKind kind, int64_t seq_len, const LoaderOptions& options) {
    const SequenceTable table(source, {.seq_len = seq_len});
    expect_error(kind, {"[loader]"}, [&] { Loader(source, table, options); });
  };
  expect_error(ErrorKind::usage, {"sequence length 0"}, [&] { SequenceTable(source, {.seq_len = 0}); });
  refused(ErrorKind::usage, 4, {.micro_batch = 0});
  refused(ErrorKind::usage, 4, {.grad_accum = -1});
  refused(ErrorKind::usage, 1 << 20, {.micro_batch = 1 << 20});
  refused(ErrorKind::internal, 4, {.rank = 2, .ranks = 2});
  const SequenceTable table(source, {.seq_len = 4});
  const Loader loader(source, table, {});
  expect_error(ErrorKind::internal, {"step -1"}, [&] { loader.step(-1); });
  // A cache that was damaged after its index was checked.
  const Loader strict(source, table, {.vocab_size = 10});
  expect_error(ErrorKind::data, {"vocabulary size 10", "damaged"}, [&] { strict.step(0); });
  expect_error(ErrorKind::data, {"nothing to train on", "1 tokens"}, [] {
    const TokenSource one = generated(1);
    SequenceTable(one, {.seq_len = 1});
  });
}

}  // namespace
}  // namespace zeno::data
