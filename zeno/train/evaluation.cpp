#include "zeno/train/evaluation.h"

#include <chrono>
#include <cmath>

#include "zeno/data/prefetcher.h"
#include "zeno/train/interrupt.h"

namespace zeno::train {

std::vector<zero::MicroBatch> views_of(const std::vector<data::HostBatch>& batches) {
  std::vector<zero::MicroBatch> views;
  for (const data::HostBatch& b : batches) {
    views.push_back({b.tokens, b.targets, b.positions, b.doc_start, b.valid_rows, b.filled});
  }
  return views;
}

bool evaluation_due(const config::EvalConfig& config, int64_t step, int64_t steps, int64_t steps_per_epoch) {
  if (step == 0) return config.on_start;
  return step == steps || step % (config.every > 0 ? config.every : steps_per_epoch) == 0;
}

std::optional<report::EvalRecord> evaluate(zero::Engine& engine, const data::Loader& loader) {
  const auto start = std::chrono::steady_clock::now();
  const int64_t rounds = loader.steps_per_epoch();
  data::Prefetcher batches(loader, 0);
  std::vector<data::HostBatch> batch;
  const auto read = [&](int64_t) {
    batch = batches.get();
    return views_of(batch);
  };
  const std::optional<zero::EvalResult> result = engine.evaluate(rounds, read, &Interrupt::requested);
  if (!result) return std::nullopt;
  const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start;
  return report::EvalRecord{.loss = result->loss,
                            .perplexity = std::exp(result->loss),
                            .token_accuracy = result->accuracy(),
                            .tokens = result->tokens,
                            .ms = ms.count()};
}

}  // namespace zeno::train
