// The loss is normalised by the valid tokens of all micro-batches and ranks: a batch with very uneven counts
// gives the same loss, gradient and update as one big micro-batch with the same rows.
#include <gtest/gtest.h>

#include "tests/support/train_run.h"
#include "zeno/zero/engine.h"

namespace zeno::zero {
namespace {

using test::Family;
using test::OwnedBatch;

constexpr nn::BatchShape kPadded{1, 12};
constexpr int kSequences = 8;
constexpr size_t kValid[kSequences] = {1, 0, 9, 2, 0, 8, 1, 0};

OwnedBatch sequence(int id) {
  OwnedBatch batch = test::make_batch(kPadded, 61, 2, id);
  const size_t keep = std::min(batch.valid_rows.size(), kValid[id]);
  for (size_t i = keep; i < batch.valid_rows.size(); ++i) batch.targets[size_t(batch.valid_rows[i])] = -1;
  batch.valid_rows.resize(keep);
  return batch;
}

// Sequences [first, first + count) as one micro-batch.
OwnedBatch joined(int first, int count) {
  OwnedBatch all;
  for (int id = first; id < first + count; ++id) {
    const OwnedBatch one = sequence(id);
    const auto add = [](std::vector<int32_t>& to, const std::vector<int32_t>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    for (int32_t row : one.valid_rows) all.valid_rows.push_back(row + int32_t(all.tokens.size()));
    add(all.tokens, one.tokens);
    add(all.targets, one.targets);
    add(all.positions, one.positions);
    add(all.doc_start, one.doc_start);
  }
  return all;
}

struct Trained {
  std::vector<double> losses, norms;
  int64_t tokens = 0;
};

// Two steps on the same eight sequences, dealt to ranks and micro-batches.
Trained train(int world, int stage, int per_micro_batch) {
  Trained outcome;
  comm::run_thread_ranks(world, {}, [&](comm::World& w) {
    const int k = kSequences / world / per_micro_batch;
    EngineOptions options{
        .mesh = comm::Mesh::flat(w.size()), .shape = {per_micro_batch, kPadded.seq}, .threads = 1};
    apply_stage(options.policy, stage);
    options.policy.micro_batches = k;
    Engine engine(test::tiny_decoder(Family::llama), options, w);
    engine.load(test::init_values);
    std::vector<OwnedBatch> owned;
    std::vector<MicroBatch> views;
    for (int mb = 0; mb < k; ++mb)
      owned.push_back(joined((w.rank() * k + mb) * per_micro_batch, per_micro_batch));
    for (const OwnedBatch& batch : owned) views.push_back(batch.view());
    for (int step = 1; step <= 3; ++step) {
      const StepResult result =
          engine.step(views, {.hyper = {.lr = 1e-2, .eps = 1e-5, .step = step}, .clip = 1});
      if (w.rank() != 0) continue;
      outcome.losses.push_back(result.loss);
      outcome.norms.push_back(result.grad_norm);
      outcome.tokens = result.tokens;
    }
  });
  return outcome;
}

TEST(Normalisation, UnevenMicroBatchesEqualOneBigBatch) {
  const Trained big = train(1, 0, kSequences);
  EXPECT_GT(big.tokens, 15);
  for (const auto& [world, stage, size] :
       {std::tuple{1, 0, 1}, {1, 0, 2}, {2, 1, 1}, {2, 3, 4}, {4, 2, 1}, {8, 3, 1}}) {
    const Trained cut = train(world, stage, size);
    EXPECT_EQ(cut.tokens, big.tokens);
    for (size_t i = 0; i < big.losses.size(); ++i) {
      EXPECT_NEAR(cut.losses[i], big.losses[i], 2e-5 * big.losses[i]) << "world " << world << " step " << i;
      EXPECT_NEAR(cut.norms[i], big.norms[i], 1e-4 * big.norms[i]) << "world " << world << " step " << i;
    }
  }
}

}  // namespace
}  // namespace zeno::zero
