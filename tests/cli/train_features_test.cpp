// What fine-tuning users know, with real processes: evaluation, the best model, early stopping, Ctrl-C and
// SIGTERM, losses that go wrong, and `zeno eval`.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/command.h"
#include "tests/support/mpirun.h"
#include "tests/support/plain_flags.h"
#include "tests/support/temp_dir.h"

namespace zeno::test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

class TrainFeatures : public testing::Test {
 protected:
  void SetUp() override {
    const CommandResult made = run_command(
        kZeno + " init --arch llama --hidden 32 --layers 2 --heads 4 --kv-heads 2 --vocab 260 --out " +
        path("model"));
    ASSERT_EQ(made.exit_code, 0) << made.output;
    dir_.write("train.jsonl", samples(0, 120));
    dir_.write("eval.jsonl", samples(1000, 13));
  }

  static std::string samples(int first, int count) {
    std::string text;
    for (int i = first; i < first + count; ++i) {
      const std::string word(size_t(1 + i % 7), char('a' + i * 7 % 26));
      text += json{{"prompt", "say " + word + ": "}, {"completion", word + " " + word}}.dump() + "\n";
    }
    return text;
  }
  std::string path(const std::string& name) const { return (dir_.path() / name).string(); }
  std::string base(const std::string& model = "model") const {
    return "--model " + path(model) + " --seq-len 48 --device cpu --cache " + path("cache");
  }
  // Arguments of `zeno train` without the data of evaluation.
  std::string train(const std::string& more, const std::string& model = "model") const {
    return kZeno + " train " + base(model) + " --data " + path("train.jsonl") + plain_flags(more) + more;
  }
  std::vector<json> metrics(const std::string& out) const {
    std::vector<json> lines;
    std::ifstream file(path(out) + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
    return lines;
  }
  std::vector<json> evaluations(const std::string& out) const {
    std::vector<json> found;
    for (const json& line : metrics(out)) {
      if (line.value("event", "") == "eval") found.push_back(line);
    }
    return found;
  }
  json eval(const std::string& model, const std::string& more = "") const {
    const CommandResult result = run_command(kZeno + " eval " + base(model) + " --data " +
                                             path("eval.jsonl") + " --json " + more + " 2>/dev/null");
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return json::parse(result.output.substr(result.output.find('{')));
  }

  // Starts a program, waits until its metrics have a few lines, and signals it.
  int signal_while_training(const std::string& command, const std::string& out, int signal) const {
    const pid_t job = fork();
    if (job == 0) {
      execl("/bin/bash", "bash", "-c", ("exec " + command + " > " + path("job.log") + " 2>&1").c_str(),
            nullptr);
      _exit(127);
    }
    const auto lines = [&] {
      std::ifstream file(path(out) + "/metrics.jsonl");
      return std::count(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>(), '\n');
    };
    const auto give_up = std::chrono::steady_clock::now() + 60s;
    while (lines() < 5 && std::chrono::steady_clock::now() < give_up) std::this_thread::sleep_for(10ms);
    EXPECT_GE(lines(), 5) << log();
    kill(job, signal);
    int status = 0;
    waitpid(job, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::string log() const {
    std::ifstream file(path("job.log"));
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  // The output of an interrupted run: says so, opens, and can be trained on.
  void expect_continues(const std::string& out) const {
    const json last = metrics(out).back();
    EXPECT_EQ(last.value("event", ""), "done");
    EXPECT_EQ(last.value("interrupted", false), true);
    EXPECT_NE(log().find("interrupted after step"), std::string::npos) << log();
    EXPECT_EQ(run_command(kZeno + " inspect " + path(out)).exit_code, 0);
    const CommandResult more = run_command(train("--steps 2 --out " + path("more"), out));
    EXPECT_EQ(more.exit_code, 0) << more.output;
    // It goes on where the other stopped.
    EXPECT_LT(metrics("more").front().at("loss").get<double>(),
              metrics(out).front().at("loss").get<double>());
  }

  TempDir dir_;
};

TEST_F(TrainFeatures, EvaluatesAndKeepsTheBest) {
  // A rate that rises until it is far too high: the best model is not the last.
  const CommandResult result = run_command(
      train("--eval-data " + path("eval.jsonl") +
            " --steps 24 --eval-every 4 --eval-on-start --keep-best --lr 2 --ranks 2 --stage 3 --clip 0 "
            "--schedule constant --warmup 40 --out " +
            path("out")));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const std::vector<json> evals = evaluations("out");
  ASSERT_EQ(evals.size(), 7u);
  double best = 1e9;
  for (size_t i = 0; i < evals.size(); ++i) {
    EXPECT_EQ(evals[i].at("step"), int64_t(4 * i));
    EXPECT_NEAR(evals[i].at("perplexity").get<double>(), std::exp(evals[i].at("eval_loss").get<double>()),
                1e-6);
    EXPECT_EQ(evals[i].at("eval_tokens"), evals[0].at("eval_tokens"));
    if (i > 0) best = std::min(best, evals[i].at("eval_loss").get<double>());
  }
  EXPECT_LT(best, evals[0].at("eval_loss").get<double>());
  EXPECT_LT(best, evals.back().at("eval_loss").get<double>());
  EXPECT_NE(result.output.find("holds the best model"), std::string::npos) << result.output;
  // The folder has the best one, to the last bit, however it is evaluated.
  for (const char* how : {"", "--ranks 3 --stage 3 --micro-batch 4"}) {
    const json found = eval("out", how);
    EXPECT_EQ(found.at("loss").get<double>(), best) << how;
    EXPECT_EQ(found.at("tokens"), evals[0].at("eval_tokens"));
  }
  for (const json& line : metrics("out")) {
    if (!line.contains("grad_norm")) continue;
    EXPECT_GE(line.at("data_wait_ms").get<double>(), 0);
    EXPECT_GT(line.at("num_tokens").get<int64_t>(), line.at("tokens").get<int64_t>());
    EXPECT_GT(line.at("epoch").get<double>(), 0);
  }
  for (const char* file : {"metrics.csv", "report.html", "tensorboard"}) {
    EXPECT_TRUE(std::filesystem::exists(path("out") + "/" + file)) << file;
  }
}

// A rate that only does harm: the base is better than all that comes, and is still no result of the run.
TEST_F(TrainFeatures, TheBestIsOneThatWasTrained) {
  const CommandResult result = run_command(train(
      "--eval-data " + path("eval.jsonl") +
      " --steps 9 --eval-every 3 --eval-on-start --keep-best --lr 5 --clip 0 --schedule constant --out " +
      path("out")));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const std::vector<json> evals = evaluations("out");
  ASSERT_EQ(evals.size(), 4u);
  double best = 1e300;
  for (size_t i = 1; i < evals.size(); ++i) best = std::min(best, evals[i].at("eval_loss").get<double>());
  EXPECT_LT(evals[0].at("eval_loss").get<double>(), best);
  EXPECT_LT(best, evals.back().at("eval_loss").get<double>());
  EXPECT_EQ(eval("out").at("loss").get<double>(), best);
}

TEST_F(TrainFeatures, StopsEarlyOnASplit) {
  // Without progress (rate 0) every evaluation after the first is no improvement.
  const CommandResult result = run_command(
      train("--eval-split 0.2 --epochs 2.5 --early-stopping 2 --eval-every 2 --lr 0 --micro-batch 2 --out " +
            path("out")));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(evaluations("out").size(), 3u);
  EXPECT_EQ(metrics("out").back().value("stopped_early", false), true);
  EXPECT_NE(result.output.find("stopped early"), std::string::npos) << result.output;
}

TEST_F(TrainFeatures, EpochsMayBeFractions) {
  ASSERT_EQ(run_command(train("--epochs 1 --out " + path("whole"))).exit_code, 0);
  ASSERT_EQ(run_command(train("--epochs 0.5 --out " + path("half"))).exit_code, 0);
  const std::vector<json> whole = metrics("whole"), half = metrics("half");
  EXPECT_EQ(whole[whole.size() - 2].at("epoch").get<double>(), 1);
  EXPECT_EQ(half.size() - 1, (whole.size() - 1 + 1) / 2);
  EXPECT_NEAR(half[half.size() - 2].at("epoch").get<double>(), 0.5, 0.05);
}

TEST_F(TrainFeatures, CtrlCSavesAndLeaves) {
  const std::string command = train("--steps 1000000 --ranks 2 --stage 3 --out " + path("out"));
  EXPECT_EQ(signal_while_training(command, "out", SIGINT), 0) << log();
  expect_continues("out");
}

TEST_F(TrainFeatures, SigtermSavesTheLastStateBesideTheBest) {
  const std::string command = train("--steps 1000000 --keep-best --eval-every 3 --eval-data " +
                                    path("eval.jsonl") + " --out " + path("out"));
  EXPECT_EQ(signal_while_training(command, "out", SIGTERM), 0) << log();
  expect_continues("out");
}

// mpirun passes SIGUSR1 on to its processes, which agree on the step after which they stop.
TEST_F(TrainFeatures, AnMpiJobSavesAndLeaves) {
  const std::string command = mpirun(2) + train("--steps 1000000 --stage 2 --out " + path("out"));
  EXPECT_EQ(signal_while_training(command, "out", SIGUSR1), 0) << log();
  expect_continues("out");
}

TEST_F(TrainFeatures, BadStepsEndTheRunAndLeaveAGoodModelAlone) {
  ASSERT_EQ(run_command(train("--steps 2 --out " + path("out"))).exit_code, 0);
  const json before = eval("out");
  const CommandResult result =
      run_command(train("--steps 50 --lr 1e37 --clip 0 --max-bad-steps 3 --ranks 2 --out " + path("out")));
  EXPECT_EQ(result.exit_code, 3) << result.output;
  for (const char* part : {"3 bad steps in a row", "train.jsonl:", "rank 1", "was not overwritten"}) {
    EXPECT_NE(result.output.find(part), std::string::npos) << part << " is missing in: " << result.output;
  }
  const json after = eval("out");
  EXPECT_EQ(after.at("loss"), before.at("loss"));
  const std::vector<json> lines = metrics("out");
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                          [](const json& line) { return line.value("event", "") == "bad_step"; }),
            3);
}

TEST_F(TrainFeatures, EvalWithoutDataIsAUsageError) {
  const CommandResult result = run_command(kZeno + " eval " + base());
  EXPECT_EQ(result.exit_code, 2) << result.output;
  const CommandResult best = run_command(train("--steps 2 --keep-best --out " + path("out")));
  EXPECT_EQ(best.exit_code, 2) << best.output;
  EXPECT_NE(best.output.find("--eval-data"), std::string::npos) << best.output;
}

}  // namespace
}  // namespace zeno::test
