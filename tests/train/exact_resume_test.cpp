// Exact resume of everything a run consists of: after a stop, the steps that follow, the evaluations and the
// final weights are those of a run that never stopped.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/support/expect_error.h"
#include "tests/support/small_run.h"
#include "zeno/checkpoint/checkpoint.h"
#include "zeno/train/saving/adapter_export.h"

namespace zeno::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class ExactResume : public testing::Test {
 protected:
  // Trains, takes away the checkpoints after step `stop`, and goes on: the end must be the same.
  void expect_exact(const std::string& flags, int64_t stop, const std::string& when_going_on = "") {
    runs_.train("whole", flags);
    runs_.train("part", flags + " --keep-last 0 --save-every 1");
    EXPECT_EQ(runs_.outcome("part"), runs_.outcome("whole")) << "saving changed the run";
    for (const Path& path : checkpoint::list_checkpoints(runs_.path("part/checkpoints"))) {
      if (checkpoint::step_of(path.filename().string()) > stop) fs::remove_all(path);
    }
    ASSERT_TRUE(fs::exists(runs_.checkpoint("part", stop)));
    runs_.train("part", flags + " --resume auto " + when_going_on);
    EXPECT_EQ(runs_.outcome("part"), runs_.outcome("whole"));
  }
  // Chats of many lengths, which packing puts together.
  std::string chats(const std::string& name, int first, int count) const {
    std::string text;
    for (int i = first; i < first + count; ++i) {
      const std::string word(size_t(1 + i * 5 % 11), char('a' + i * 7 % 26));
      text += json{{"messages",
                    {{{"role", "user"}, {"content", "say " + word}},
                     {{"role", "assistant"}, {"content", word + " " + word}}}}}
                  .dump() +
              "\n";
    }
    return runs_.dir().write(name, text).string();
  }
  std::vector<json> lines(const std::string& out) const {
    std::vector<json> found;
    for (const std::string& line : runs_.outcome(out)) found.push_back(json::parse(line));
    return found;
  }

  SmallRuns runs_;
};

TEST_F(ExactResume, PackedChatsInTheMiddleOfAnEpoch) {
  const std::string flags = "--data " + chats("train.jsonl", 0, 60) +
                            " --seq-len 96 --ranks 2 --stage 3 --micro-batch 2 --epochs 2.5";
  expect_exact(flags, 3);
  const std::vector<json> whole = lines("whole");
  const double epoch = whole[2].at("epoch");
  EXPECT_TRUE(epoch > 0 && epoch < 1) << epoch;
}

TEST_F(ExactResume, AtTheEndOfAnEpoch) {
  const std::string flags = "--data " + chats("train.jsonl", 0, 30) +
                            " --seq-len 96 --ranks 2 --stage 1 --micro-batch 1 --epochs 2";
  runs_.train("probe", flags);
  int64_t end = 0;
  for (const json& line : lines("probe")) {
    if (line.contains("epoch") && line.at("epoch") == 1.0) end = line.at("step");
  }
  ASSERT_GT(end, 0);
  expect_exact(flags, end);
}

TEST_F(ExactResume, AdaptersOnly) {
  const std::string flags = "--ranks 2 --stage 2 --micro-batch 1 --steps 6 --lora-rank 4 --lora-dropout 0.1";
  expect_exact(flags, 3, "--save-every 6");
  expect_error(ErrorKind::usage, {"adapters and their settings"},
               [&] { runs_.train("part", flags + " --lora-alpha 32 --resume auto"); });
  expect_error(ErrorKind::usage, {"adapters and their settings"},
               [&] { runs_.train("part", flags + " --quantize-base nf4 --resume auto"); });
  // Its checkpoint is an adapter too: the very one that the run has written at its end.
  train::export_adapter(
      {.checkpoint = runs_.checkpoint("part", 6), .base = {}, .out = runs_.path("exported")});
  for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
    EXPECT_EQ(read_file(runs_.path("exported") + "/" + file), read_file(runs_.path("whole") + "/" + file))
        << file;
}

TEST_F(ExactResume, NoiseOfEmbeddings) {
  expect_exact("--ranks 2 --stage 3 --micro-batch 1 --steps 6 --neftune 5", 3);
}

TEST_F(ExactResume, LossScaleAfterAnOverflow) {
  const std::string config = runs_.dir()
                                 .write("ds.json", R"({"fp16": {"enabled": true, "initial_scale_power": 30,
                                                "loss_scale_window": 2, "hysteresis": 2}})")
                                 .string();
  expect_exact("--config " + config + " --ranks 2 --stage 2 --micro-batch 1 --steps 20", 9);
  const std::vector<json> whole = lines("whole");
  EXPECT_TRUE(whole[0].at("skipped").get<bool>());
  EXPECT_NE(whole[10].at("loss_scale"), whole[0].at("loss_scale"));
}

TEST_F(ExactResume, WarmUpStableAndDecay) {
  expect_exact("--ranks 1 --micro-batch 1 --steps 20 --schedule wsd --warmup 2", 18);
  const std::vector<json> whole = lines("whole");
  EXPECT_LT(whole[19].at("lr").get<double>(), whole[10].at("lr").get<double>());
}

// Evaluations that bring nothing count on over the stop.
TEST_F(ExactResume, EvaluationsAndEarlyStopping) {
  const std::string flags =
      "--data " + chats("train.jsonl", 0, 60) + " --eval-data " + chats("eval.jsonl", 900, 9) +
      " --seq-len 96 --ranks 2 --stage 3 --micro-batch 1 --steps 40 --lr 0 --eval-every 2 "
      "--early-stopping 3 --keep-best";
  expect_exact(flags, 5);
  EXPECT_TRUE(lines("whole").back().value("stopped_early", false));
  // Gone on from the very step at which it gave up, it does nothing more.
  runs_.train("part", flags + " --resume auto");
  runs_.train("part", flags + " --save-every 100 --resume auto");
  const report::RunSummary again = runs_.train("part", flags + " --save-every 100 --resume auto");
  EXPECT_TRUE(again.stopped_early);
  EXPECT_EQ(runs_.outcome("part"), runs_.outcome("whole"));
}

// Stopped while it evaluates, a run has that evaluation still before it.
TEST_F(ExactResume, AStopInAnEvaluation) {
  const std::string flags = "--data " + chats("train.jsonl", 0, 60) + " --eval-data " +
                            chats("eval.jsonl", 900, 200) +
                            " --seq-len 96 --ranks 2 --stage 3 --micro-batch 1 --steps 4 --eval-every 2";
  runs_.train("whole", flags);
  std::thread user([this] {
    while (runs_.outcome("part").size() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    kill(getpid(), SIGUSR1);
  });
  const report::RunSummary stopped = runs_.train("part", flags + " --save-every 100");
  user.join();
  ASSERT_TRUE(stopped.interrupted);
  EXPECT_EQ(stopped.steps, 2);
  EXPECT_EQ(runs_.outcome("part").size(), 3u) << "two steps and the end, no evaluation";
  runs_.train("part", flags + " --resume auto");
  EXPECT_EQ(runs_.outcome("part"), runs_.outcome("whole"));
}

TEST_F(ExactResume, AFinishedRunDoesNothing) {
  const std::string flags = "--ranks 2 --stage 3 --micro-batch 1 --steps 4 --save-every 2";
  runs_.train("out", flags);
  const std::vector<std::string> before = runs_.outcome("out");
  const auto written = fs::last_write_time(runs_.checkpoint("out", 4) / "manifest.json");
  const report::RunSummary again = runs_.train("out", flags + " --resume auto");
  EXPECT_EQ(again.steps, 4);
  EXPECT_EQ(runs_.outcome("out"), before);
  EXPECT_EQ(fs::last_write_time(runs_.checkpoint("out", 4) / "manifest.json"), written);
}

// The checkpoint of the best evaluation stays while it is the best, whatever else is removed.
TEST_F(ExactResume, RetentionKeepsTheBest) {
  // A rate that rises until it is far too high: the best evaluation is not the last.
  runs_.train("out",
              "--data " + chats("train.jsonl", 0, 60) + " --eval-data " + chats("eval.jsonl", 900, 9) +
                  " --seq-len 96 --micro-batch 2 --steps 24 --eval-every 2 --save-every 2 --keep-last 1 "
                  "--keep-best --lr 2 --clip 0 --schedule constant --warmup 40");
  double best = 1e9;
  int64_t step = 0;
  for (const json& line : lines("out")) {
    if (line.value("event", "") != "eval" || line.at("eval_loss").get<double>() >= best) continue;
    best = line.at("eval_loss");
    step = line.at("step");
  }
  ASSERT_TRUE(step > 0 && step < 24) << step;
  EXPECT_EQ(list_folder(runs_.path("out/checkpoints")),
            (std::vector<std::string>{checkpoint::checkpoint_name(step), checkpoint::checkpoint_name(24)}));
}

}  // namespace
}  // namespace zeno::test
