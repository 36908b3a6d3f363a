// Steps as golden files of models have them: the batch, the optimizer, and what came out.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/golden.h"
#include "zeno/zero/engine.h"

namespace zeno::test {

// The rows of the golden batch that a rank gets: one sequence each, or all.
struct RankBatch {
  std::vector<int32_t> tokens, targets, positions, doc_start, valid_rows;

  RankBatch(const Golden& golden, int rank, int world) {
    const auto part = [&](const char* name) {
      const std::vector<int32_t> all = golden.ints(name);
      const size_t count = all.size() / size_t(world);
      return std::vector<int32_t>(all.begin() + int64_t(count) * rank,
                                  all.begin() + int64_t(count) * (rank + 1));
    };
    tokens = part("tokens");
    targets = part("targets");
    positions = part("positions");
    doc_start = part("doc_start");
    for (size_t r = 0; r < targets.size(); ++r) {
      if (targets[r] < 0) continue;
      valid_rows.push_back(int32_t(r));
    }
  }
  zero::MicroBatch view() const { return {tokens, targets, positions, doc_start, valid_rows}; }
};

inline zero::StepControl golden_control(const Golden& golden, int step) {
  const auto number = [&](const char* key) { return std::stod(golden.metadata().at(key)); };
  zero::StepControl control;
  control.hyper = {.lr = number("lr"),
                   .beta1 = number("beta1"),
                   .beta2 = number("beta2"),
                   .eps = number("eps"),
                   .weight_decay = number("weight_decay"),
                   .step = step + 1};
  control.clip = number("clip");
  return control;
}

// One step; its loss and norm must be those of the file.
inline void take_golden_step(zero::Engine& engine, const RankBatch& batch, const Golden& golden, int step,
                             double tolerance) {
  const zero::MicroBatch view = batch.view();
  const zero::StepResult result = engine.step({&view, 1}, golden_control(golden, step));
  const double loss = golden.floats("losses")[size_t(step)], norm = golden.floats("grad_norms")[size_t(step)];
  EXPECT_NEAR(result.loss, loss, tolerance * loss) << "step " << step;
  EXPECT_NEAR(result.grad_norm, norm, 10 * tolerance * norm) << "step " << step;
}

}  // namespace zeno::test
