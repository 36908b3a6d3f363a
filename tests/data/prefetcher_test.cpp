#include "zeno/data/prefetcher.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace zeno::data {
namespace {

class PrefetcherTest : public ::testing::Test {
 protected:
  TokenSource source_ =
      TokenSource::generated({.vocab_size = 50, .tokens = 2000, .document_tokens = 30, .seed = 1, .eos = 0});
  SequenceTable table_{source_, {.seq_len = 16}};
  Loader loader_{source_, table_, {.micro_batch = 2, .grad_accum = 2, .seed = 3}};
};

TEST_F(PrefetcherTest, GivesTheStepsInOrder) {
  Prefetcher prefetcher(loader_, 5);
  for (int64_t step = 5; step < 60; ++step) EXPECT_EQ(prefetcher.get(), loader_.step(step)) << step;
}

TEST_F(PrefetcherTest, CanBeLeftAtAnyMoment) {
  for (int i = 0; i < 50; ++i) {
    Prefetcher prefetcher(loader_, 0);
    for (int j = 0; j < i % 3; ++j) prefetcher.get();
  }
}

TEST_F(PrefetcherTest, RethrowsInGet) {
  Prefetcher prefetcher(loader_, -1);
  for (int i = 0; i < 2; ++i) test::expect_error(ErrorKind::internal, {"step -1"}, [&] { prefetcher.get(); });
}

}  // namespace
}  // namespace zeno::data
