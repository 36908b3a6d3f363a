// Runs that are stepped by somebody else's loop: the bits of train(), and what a loop may do between steps.
#include "zeno/train/trainer.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/small_run.h"

namespace zeno::test {
namespace {

const std::string kTrainerFlags = "--ranks 2 --stage 2 --micro-batch 2 --steps 6 --eval-split 8 ";

void only_step(train::Trainer& trainer) {
  while (!trainer.done()) trainer.step();
}

TEST(Trainer, StepsAloneGiveTheBitsOfTheRun) {
  const SmallRuns runs;
  const uint64_t expected = runs.train("whole", kTrainerFlags).weights_hash;
  EXPECT_EQ(runs.train("stepped", kTrainerFlags, only_step).weights_hash, expected);
}

TEST(Trainer, TheLoopDecidesWhenToEvaluateAndSave) {
  const SmallRuns runs;
  const report::RunSummary whole = runs.train("whole", kTrainerFlags);
  const report::RunSummary own =
      runs.train("own", kTrainerFlags + "--save-every 1000", [&](train::Trainer& trainer) {
        while (!trainer.done()) {
          trainer.step();
          if (trainer.steps() != 3) continue;
          EXPECT_EQ(trainer.planned_steps(), 6);
          EXPECT_GT(trainer.result().loss, 0);
          const auto found = trainer.evaluate();
          ASSERT_TRUE(found.has_value());
          EXPECT_EQ(found->step, 3);
          trainer.save();
          trainer.save_model(runs.path("third"));
        }
      });
  EXPECT_EQ(own.weights_hash, whole.weights_hash);
  EXPECT_EQ(own.last_eval->step, 3);
  EXPECT_TRUE(std::filesystem::exists(runs.checkpoint("own", 3)));
  EXPECT_TRUE(std::filesystem::exists(runs.path("third/model.safetensors")));
}

TEST(Trainer, ALoopMayEndEarlyAndTheRunGoesOnLater) {
  const SmallRuns runs;
  const uint64_t expected = runs.train("whole", kTrainerFlags).weights_hash;
  const std::string saves = kTrainerFlags + "--save-every 1000 ";
  const report::RunSummary part = runs.train("part", saves, [](train::Trainer& trainer) {
    while (trainer.steps() < 4) trainer.step();
    trainer.save();
  });
  EXPECT_EQ(part.steps, 4);
  EXPECT_EQ(part.saved_step, 4);
  EXPECT_NE(part.weights_hash, expected);
  const report::RunSummary rest = runs.train("part", saves + "--resume auto", [](train::Trainer& trainer) {
    EXPECT_EQ(trainer.steps(), 4);
    only_step(trainer);
  });
  EXPECT_EQ(rest.weights_hash, expected);
}

TEST(Trainer, SaysWhatARunCannotDo) {
  const SmallRuns runs;
  runs.train("out", "--ranks 1 --steps 1", [](train::Trainer& trainer) {
    expect_error(ErrorKind::usage, {"--eval-data"}, [&] { trainer.evaluate(); });
    expect_error(ErrorKind::usage, {"--save-every"}, [&] { trainer.save(); });
    trainer.step();
    EXPECT_TRUE(trainer.done());
    expect_error(ErrorKind::internal, {"after the last one"}, [&] { trainer.step(); });
  });
}

}  // namespace
}  // namespace zeno::test
