// Warm-up before the first step: on a GPU the whole program runs once on random numbers, so that matmul
// algorithms are timed and chosen in place (without extra memory), kernels loaded and attention plans built.
// (Plans for packed documents are built at the first batch that has them.) The state is undefined afterwards.
#include <random>
#include <vector>

#include "zeno/kernels/cuda/fill_random.h"
#include "zeno/kernels/cuda/matmul/matmul_plans.h"
#include "zeno/zero/engine.h"

namespace zeno::zero {
namespace {

// The same for every micro-batch: random tokens, all of them targets.
struct RandomBatch {
  RandomBatch(nn::BatchShape shape, int64_t vocab) {
    std::mt19937 engine(1);
    std::uniform_int_distribution<int32_t> token(0, int32_t(vocab - 1));
    for (int64_t row = 0; row < shape.rows(); ++row) {
      tokens.push_back(token(engine));
      positions.push_back(int32_t(row % shape.seq));
      rows.push_back(int32_t(row));
    }
  }
  MicroBatch view() const { return {tokens, tokens, positions, {}, rows}; }
  std::vector<int32_t> tokens, positions, rows;
};

}  // namespace

void Engine::warm_up() {
  const zeno::cuda::MatmulTuning tuning;
  const StreamRef stream = executor_->compute();
  const auto randomise = [&](const Buffer& buffer) {
    zeno::cuda::fill_random(stream, buffer.data(), buffer.bytes(), policy_.compute);
  };
  store_.for_buffers(randomise);
  executor_->for_pools(Tier::device, randomise);
  const RandomBatch batch(shape_, model_.vocab);
  const std::vector<MicroBatch> batches(size_t(policy_.micro_batches), batch.view());
  if (policy_.trains) {
    submit(batches, {.clip = 1});
    executor_->wait();
    executor_->settle();
    under_way_.clear();
  } else {
    evaluate(1, [&](int64_t) { return batches; });
  }
  traffic_ = executor_->traffic();
}

}  // namespace zeno::zero
