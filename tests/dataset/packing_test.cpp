// Packing: what best fit promises, and that every sample is used once whatever the packing and world size.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "tests/support/expect_error.h"
#include "zeno/base/rng.h"
#include "zeno/data/dataset/best_fit.h"
#include "zeno/data/dataset/sequences.h"
#include "zeno/data/loader.h"

namespace zeno::data {
namespace {

using test::expect_error;
using Ids = std::vector<int32_t>;

// Lengths as chats have them: log-normal, median 150 tokens.
std::vector<uint32_t> chat_lengths(size_t n, uint32_t most) {
  std::vector<uint32_t> lengths(n);
  for (size_t i = 0; i < n; ++i) {
    const double length = std::exp(5.0 + 0.8 * random_normal(1, 2, i));
    lengths[i] = std::clamp(uint32_t(length), 1u, most);
  }
  return lengths;
}

void expect_packed(const std::vector<uint32_t>& lengths, uint32_t capacity, const Bins& bins) {
  std::vector<bool> seen(lengths.size());
  ASSERT_EQ(bins.starts.front(), 0u);
  ASSERT_EQ(bins.starts.back(), lengths.size());
  for (size_t b = 0; b + 1 < bins.starts.size(); ++b) {
    uint64_t sum = 0;
    ASSERT_LT(bins.starts[b], bins.starts[b + 1]) << "an empty bin";
    for (uint32_t i = bins.starts[b]; i < bins.starts[b + 1]; ++i) {
      ASSERT_FALSE(seen[bins.items[i]]);
      seen[bins.items[i]] = true;
      sum += lengths[bins.items[i]];
    }
    ASSERT_LE(sum, capacity);
  }
}

TEST(BestFit, WorkedByHand) {
  // 7 | 6+3 | 5+4+1 in bins of 10, where the second 3 finds the bin of the 7.
  const Bins bins = best_fit(std::vector<uint32_t>{3, 7, 4, 5, 1, 6, 3}, 10);
  EXPECT_EQ(bins.items, (std::vector<uint32_t>{1, 0, 5, 2, 3, 6, 4}));
  EXPECT_EQ(bins.starts, (std::vector<uint32_t>{0, 2, 4, 7}));
}

TEST(BestFit, NeverOverfillsAndLosesNothing) {
  for (const uint32_t capacity : {1u, 2u, 63u, 64u, 65u, 1000u, 5000u}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      std::vector<uint32_t> lengths(seed * 17);
      for (size_t i = 0; i < lengths.size(); ++i)
        lengths[i] = 1 + uint32_t(random_bits(seed, 0, i) % capacity);
      expect_packed(lengths, capacity, best_fit(lengths, capacity));
    }
  }
}

TEST(BestFit, IsBestFitByBruteForce) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::vector<uint32_t> lengths(60);
    for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = 1 + uint32_t(random_bits(seed, 1, i) % 40);
    std::vector<uint32_t> order(lengths.size());
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::stable_sort(order, std::greater(), [&](uint32_t i) { return lengths[i]; });
    std::vector<uint32_t> rooms;  // the number of bins does not depend on which of equal ones is taken
    for (const uint32_t i : order) {
      uint32_t* best = nullptr;
      for (uint32_t& room : rooms) {
        if (room >= lengths[i] && (best == nullptr || room < *best)) best = &room;
      }
      if (best == nullptr) best = &rooms.emplace_back(64);
      *best -= lengths[i];
    }
    EXPECT_EQ(best_fit(lengths, 64).starts.size() - 1, rooms.size());
  }
}

TEST(BestFit, IsWithinOnePercentOnChats) {
  for (const uint32_t capacity : {1024u, 2048u, 8192u}) {
    const std::vector<uint32_t> lengths = chat_lengths(50000, capacity);
    const Bins bins = best_fit(lengths, capacity);
    const uint64_t tokens = std::accumulate(lengths.begin(), lengths.end(), uint64_t(0));
    const double least = std::ceil(double(tokens) / capacity);
    EXPECT_LE(double(bins.starts.size() - 1), 1.01 * least) << capacity;
  }
}

// Samples whose tokens say which they are; every third token is not learned.
TokenSource samples_of(size_t count, size_t longest) {
  std::vector<Sample> samples(count);
  for (size_t i = 0; i < count; ++i) {
    const size_t length = 2 + random_bits(3, 4, i) % (longest - 1);
    for (size_t t = 0; t < length; ++t) {
      samples[i].ids.push_back(int32_t(i * 1000 + t));
      samples[i].learned.push_back(t % 3 != 2);
    }
  }
  return TokenSource::of(samples);
}

// What an epoch of all ranks holds: how often each token is an input, and each a target.
struct Epoch {
  std::map<int32_t, int> inputs, targets;
  int64_t batches = 0;
};

Epoch run_epoch(const TokenSource& source, const SequenceTable& table, int world, bool shuffle) {
  Epoch epoch;
  for (int rank = 0; rank < world; ++rank) {
    const Loader loader(
        source, table, {.micro_batch = 2, .grad_accum = 2, .rank = rank, .ranks = world, .shuffle = shuffle});
    for (int64_t step = 0; step < loader.steps_per_epoch(); ++step) {
      for (const HostBatch& batch : loader.step(step)) {
        ++epoch.batches;
        int64_t filled = 0;
        for (size_t i = 0; i < batch.tokens.size(); ++i) {
          const auto t = int32_t(i % size_t(batch.seq));
          const int32_t id = batch.tokens[i], start = batch.doc_start[i];
          EXPECT_EQ(batch.positions[i], t - start);
          if (id == 0 && batch.targets[i] < 0) continue;  // padding, or the first token of sample 0
          ++filled;
          ++epoch.inputs[id];
          if (batch.targets[i] >= 0) {
            EXPECT_EQ(batch.targets[i], id + 1);
            ++epoch.targets[batch.targets[i]];
          }
          // No attention across samples: all the row sees is of its own sample.
          const size_t first = i - size_t(t - start);
          EXPECT_EQ(batch.tokens[first] / 1000, id / 1000);
          EXPECT_EQ(batch.tokens[first] + (t - start), id);
        }
        EXPECT_LE(filled, batch.filled);
      }
    }
  }
  return epoch;
}

TEST(SequenceTable, EverySampleCountsOncePerEpoch) {
  const TokenSource source = samples_of(101, 40);
  for (const Packing packing : {Packing::best_fit, Packing::none, Packing::wrapped}) {
    for (const TooLong too_long : {TooLong::truncate, TooLong::split}) {
      for (const int64_t T : {16, 40, 64}) {
        const SequenceTable table(source, {.seq_len = T, .packing = packing, .too_long = too_long});
        std::map<int32_t, int> expected;
        for (int world : {1, 2, 3, 4}) {
          const Epoch epoch = run_epoch(source, table, world, world % 2 == 0);
          for (const auto& [id, count] : epoch.inputs) EXPECT_EQ(count, 1) << id;
          for (const auto& [id, count] : epoch.targets) EXPECT_EQ(count, 1) << id;
          EXPECT_EQ(epoch.batches % world, 0);
          if (world == 1) expected = epoch.targets;
          EXPECT_EQ(epoch.targets, expected);
        }
        const bool cuts = too_long == TooLong::truncate && packing != Packing::wrapped;
        if (!cuts || T >= 41) {
          int64_t learned = 0;
          std::vector<uint8_t> marks(size_t(source.tokens()));
          source.copy_learned(0, marks);
          const auto starts = source.document_starts();
          for (int64_t d = 0; d < source.documents(); ++d) {
            for (int64_t i = starts[size_t(d)] + 1; i < starts[size_t(d) + 1]; ++i)
              learned += marks[size_t(i)];
          }
          EXPECT_EQ(int64_t(expected.size()), learned) << int(packing) << " " << T;
        }
        EXPECT_LE(table.report().fill(), 1.0);
      }
    }
  }
}

std::vector<Piece> all_pieces(const SequenceTable& table) {
  std::vector<Piece> all, some;
  for (int64_t s = 0; s < table.sequences(); ++s) {
    table.pieces(s, some);
    all.insert(all.end(), some.begin(), some.end());
  }
  std::ranges::sort(all, {}, &Piece::begin);
  return all;
}

TEST(SequenceTable, TooLongSamplesAreTreatedAsAsked) {
  const TokenSource source =
      TokenSource::of({{.ids = {1, 2, 3}, .learned = {0, 1, 1}},
                       {.ids = {1, 2, 3, 4, 5, 6, 7}, .learned = {0, 0, 0, 0, 0, 1, 1}}});
  const auto table = [&](TooLong too_long) {
    return SequenceTable(source, {.seq_len = 3, .packing = Packing::none, .too_long = too_long});
  };
  const auto lengths = [&](TooLong too_long) {
    std::vector<std::pair<int64_t, int64_t>> out;
    for (const Piece& piece : all_pieces(table(too_long))) out.emplace_back(piece.begin, piece.length);
    return out;
  };
  using Pieces = std::vector<std::pair<int64_t, int64_t>>;
  // Cut at the front half, nothing is left to learn.
  EXPECT_EQ(lengths(TooLong::truncate), (Pieces{{0, 3}}));
  EXPECT_EQ(table(TooLong::truncate).report().nothing_to_learn, 1);
  EXPECT_EQ(lengths(TooLong::keep_end), (Pieces{{0, 3}, {7, 3}}));
  EXPECT_EQ(table(TooLong::keep_end).report().cut, 1);
  // The last piece is one token, which nothing follows.
  EXPECT_EQ(lengths(TooLong::split), (Pieces{{0, 3}, {6, 3}}));
  EXPECT_EQ(lengths(TooLong::drop), (Pieces{{0, 3}}));
  EXPECT_EQ(table(TooLong::drop).report().dropped, 1);
  expect_error(ErrorKind::data, {"document 1", "7 tokens", "at most 3", "--seq-len"},
               [&] { table(TooLong::error); });
}

TEST(SequenceTable, SaysWhatItDid) {
  const TokenSource source = samples_of(1200, 40);
  const SequenceTable packed(source, {.seq_len = 64});
  EXPECT_NE(packed.report().text().find("packed 1,200 samples into"), std::string::npos)
      << packed.report().text();
  EXPECT_GT(packed.report().fill(), 0.98);
  const SequenceTable padded(source, {.seq_len = 64, .packing = Packing::none});
  EXPECT_EQ(padded.sequences(), 1200);
  EXPECT_LT(padded.report().fill(), 0.4);
  EXPECT_NE(padded.report().text().find("padded 1,200 samples to 1,200 sequences of 64"), std::string::npos);
  EXPECT_EQ(packed.host_bytes(), 1200 * 8 + (size_t(packed.sequences()) + 1) * 4);
}

TEST(SequenceTable, DependsOnTheSeedOnly) {
  const TokenSource source = samples_of(500, 40);
  const auto first = [&](uint64_t seed, bool shuffle) {
    const SequenceTable table(source, {.seq_len = 64, .seed = seed, .shuffle = shuffle});
    std::vector<int64_t> out;
    std::vector<Piece> pieces;
    for (int64_t s = 0; s < table.sequences(); ++s) {
      table.pieces(s, pieces);
      for (const Piece& piece : pieces) out.push_back(piece.begin);
    }
    return out;
  };
  EXPECT_EQ(first(1, true), first(1, true));
  EXPECT_NE(first(1, true), first(2, true));
  EXPECT_EQ(first(1, false), first(2, false));
}

TEST(SequenceTable, HeldOutSamplesAreNeverTrainedOn) {
  const TokenSource source = samples_of(300, 40);
  for (const Packing packing : {Packing::best_fit, Packing::none, Packing::wrapped}) {
    for (const double share : {0.1, 17.0}) {
      PackOptions options{
          .seq_len = 64, .packing = packing, .seed = 5, .hold_out = share, .part = SamplePart::train};
      const SequenceTable train(source, options);
      options.part = SamplePart::held_out;
      const SequenceTable held_out(source, options);
      std::set<int64_t> seen;
      for (const Piece& piece : all_pieces(train)) EXPECT_TRUE(seen.insert(piece.begin).second);
      for (const Piece& piece : all_pieces(held_out)) EXPECT_TRUE(seen.insert(piece.begin).second);
      if (packing == Packing::wrapped) {
        EXPECT_EQ(int64_t(seen.size()), (source.tokens() - 1 + 63) / 64);
      } else {
        EXPECT_EQ(held_out.report().samples, share < 1 ? 30 : 17);
        EXPECT_EQ(seen.size(), 300u);
      }
      options.max_samples = 3;
      EXPECT_EQ(all_pieces(SequenceTable(source, options)).size(), 3u);
    }
  }
  expect_error(ErrorKind::data, {"300 of 300", "--eval-split"},
               [&] { SequenceTable(source, {.seq_len = 64, .hold_out = 300, .part = SamplePart::train}); });
}

}  // namespace
}  // namespace zeno::data
