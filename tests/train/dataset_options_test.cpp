// The data of a run, opened by several ranks at once.
#include "zeno/train/dataset_options.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "tests/support/temp_dir.h"
#include "zeno/data/tokenizer.h"

namespace zeno::train {
namespace {

class RunDataTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_.path() / "model");
    folder_.write("model/tokenizer.json", data::byte_tokenizer_json(257));
    config_.run.model = folder_.path() / "model";
    config_.run.cache = folder_.path() / "cache";
    config_.batch = {.train_batch = 0, .micro_batch = 2, .grad_accum = 1};
  }
  void write(int lines, const std::string& last = "") {
    std::string text;
    for (int i = 0; i < lines; ++i)
      text += fmt::format("{{\"prompt\": \"{} \", \"completion\": \"abc\"}}\n", i);
    config_.run.data = {folder_.write("a.jsonl", text + last)};
  }
  test::TempDir folder_;
  config::TrainConfig config_;
};

TEST_F(RunDataTest, AllRanksShareOneBuildAndDealTheSamples) {
  write(40);
  config_.eval.split = 0.25;
  std::atomic<int64_t> learned = 0, evaluated = 0;
  comm::run_thread_ranks(3, {}, [&](comm::World& world) {
    RunData data = open_run_data(config_, 257, 32, world);
    data.deal(config_, world);
    for (int64_t step = 0; step < data.train().steps_per_epoch(); ++step) {
      for (const auto& batch : data.train().step(step)) learned += int64_t(batch.valid_rows.size());
    }
    for (int64_t step = 0; step < data.evaluation()->steps_per_epoch(); ++step) {
      for (const auto& batch : data.evaluation()->step(step)) evaluated += int64_t(batch.valid_rows.size());
    }
    EXPECT_LT(data.host_bytes(), 1000u);
  });
  EXPECT_EQ(learned, 30 * 4);  // abc and eos of each
  EXPECT_EQ(evaluated, 10 * 4);
}

TEST_F(RunDataTest, EveryRankGetsTheReasonOfAFailure) {
  write(3, "nonsense");
  std::atomic<int> told = 0;
  comm::run_thread_ranks(3, {}, [&](comm::World& world) {
    try {
      open_run_data(config_, 257, 32, world);
    } catch (const Error& error) {
      told +=
          error.kind() == ErrorKind::data && std::string(error.what()).find("a.jsonl:4") != std::string::npos;
    }
  });
  EXPECT_EQ(told, 3);
}

TEST_F(RunDataTest, ProgressIsToldAndMayEndTheBuild) {
  write(40);
  std::atomic<int> told = 0;
  comm::run_thread_ranks(3, {}, [&](comm::World& world) {
    const auto stop = [](const data::BuildState&) { fail(ErrorKind::usage, "enough"); };
    try {
      open_run_data(config_, 257, 32, world, stop);
    } catch (const Error& error) {
      told += error.what() == std::string("enough");
    }
  });
  EXPECT_EQ(told, 3);
  std::atomic<int64_t> samples = 0;
  comm::run_thread_ranks(3, {}, [&](comm::World& world) {
    open_run_data(config_, 257, 32, world, [&](const data::BuildState& state) { samples = state.samples; });
  });
  EXPECT_EQ(samples, 40);
}

}  // namespace
}  // namespace zeno::train
