// `zeno train` on a GPU as a user starts it: one rank, and processes under mpirun that talk through NCCL. All
// of them share GPU 0, so each pretends to be a host of its own: NCCL refuses two ranks of one host on one
// device.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/command.h"
#include "tests/support/plain_flags.h"
#include "tests/support/temp_dir.h"
#include "zeno/device/device.h"

namespace zeno::cuda_tests {
namespace {

using test::CommandResult;
using test::run_command;

class CudaTrain : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count(Device::Kind::cuda) == 0) GTEST_SKIP() << "no GPU";
    const CommandResult made = run_command(
        kZeno + " init --arch llama --hidden 128 --layers 3 --heads 4 --kv-heads 2 --vocab 512 --out " +
        path("model"));
    ASSERT_EQ(made.exit_code, 0) << made.output;
  }

  std::string path(const std::string& name) const { return (dir_.path() / name).string(); }
  // 8 samples per step, however many ranks there are.
  std::string train(int ranks, int stage, const std::string& out, const std::string& more) const {
    return kZeno + " train --model " + path("model") +
           " --data generated --dtype bf16 --device cuda --seq-len 128" + test::plain_flags(more) +
           "--deterministic --micro-batch " + std::to_string(8 / ranks) + " --stage " +
           std::to_string(stage) + " --cache " + path("cache") + " --out " + path(out) + " " + more;
  }
  static std::string launch(int ranks, const std::string& command) {
    return "NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 timeout 120 mpirun --allow-run-as-root --oversubscribe "
           "--enable-recovery --mca btl self,vader,tcp --mca btl_vader_single_copy_mechanism none "
           "-x NCCL_SOCKET_IFNAME -x NCCL_IB_DISABLE -n " +
           std::to_string(ranks) + " sh -c 'NCCL_HOSTID=rank$OMPI_COMM_WORLD_RANK exec " + command + "'";
  }
  std::vector<nlohmann::json> metrics(const std::string& out) const {
    std::vector<nlohmann::json> lines;
    std::ifstream file(path(out) + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  // Of a run that may be writing the last one.
  int64_t lines(const std::string& out) const {
    std::ifstream file(path(out) + "/metrics.jsonl");
    return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
  }

  const std::string kZeno = std::string(ZENO_BINARY_DIR) + "/zeno";
  test::TempDir dir_;
};

TEST_F(CudaTrain, StagesOverNcclGiveTheSameBitsAndFollowOneRank) {
  const CommandResult alone = run_command(train(1, 0, "alone", "--steps 4"));
  ASSERT_EQ(alone.exit_code, 0) << alone.output;
  for (int ranks : {2, 4}) {
    std::vector<nlohmann::json> reference;
    for (int stage : {0, 1, 2, 3}) {
      const std::string out = fmt::format("r{}s{}", ranks, stage);
      const CommandResult result = run_command(launch(ranks, train(ranks, stage, out, "--steps 4")));
      ASSERT_EQ(result.exit_code, 0) << result.output;
      const std::vector<nlohmann::json> lines = metrics(out);
      if (stage == 0) reference = lines;
      EXPECT_EQ(lines.back(), reference.back()) << ranks << " ranks, stage " << stage;
      for (size_t i = 0; i + 1 < lines.size(); ++i) {
        const double loss = lines[i].at("loss"), expected = metrics("alone")[i].at("loss");
        EXPECT_EQ(loss, double(reference[i].at("loss"))) << ranks << " ranks, stage " << stage;
        EXPECT_NEAR(loss, expected, 1e-3 * expected) << ranks << " ranks, stage " << stage;
      }
    }
  }
}

TEST_F(CudaTrain, GroupsOverNcclGiveTheBitsOfTheFlatRun) {
  const CommandResult flat = run_command(launch(4, train(4, 3, "flat", "--steps 3")));
  ASSERT_EQ(flat.exit_code, 0) << flat.output;
  for (const char* groups : {"--shard-group 2", "--param-group 2"}) {
    const std::string out = std::string("out") + groups[2];
    const CommandResult result =
        run_command(launch(4, train(4, 3, out, fmt::format("--steps 3 {}", groups))));
    ASSERT_EQ(result.exit_code, 0) << groups << ": " << result.output;
    EXPECT_EQ(metrics(out).back(), metrics("flat").back()) << groups;
  }
}

TEST_F(CudaTrain, StagesOverNcclGiveTheBitsOfOneStage) {
  const char* flags = "--steps 3 --grad-accum 4";
  const CommandResult one = run_command(launch(2, train(2, 1, "one", flags)));
  ASSERT_EQ(one.exit_code, 0) << one.output;
  const CommandResult two = run_command(launch(4, train(2, 1, "two", fmt::format("{} --pipe 2", flags))));
  ASSERT_EQ(two.exit_code, 0) << two.output;
  EXPECT_EQ(metrics("two").back(), metrics("one").back());
  const CommandResult shared =
      run_command(launch(4, train(2, 1, "shared", fmt::format("{} --pipe 2 --context 2", flags))));
  EXPECT_EQ(shared.exit_code, 0) << shared.output;
}

// Snapshots are copied beside the next step: what is saved is the state after the step that was asked for.
TEST_F(CudaTrain, ARunThatGoesOnFromACheckpointEndsWithTheSameBits) {
  const CommandResult whole = run_command(train(1, 0, "whole", "--steps 12"));
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  const CommandResult saved = run_command(train(1, 0, "part", "--steps 12 --save-every 5 --keep-last 0"));
  ASSERT_EQ(saved.exit_code, 0) << saved.output;
  EXPECT_EQ(metrics("part").back(), metrics("whole").back()) << "saving changed the run";
  std::filesystem::remove_all(path("part/checkpoints/step-00000012"));
  const CommandResult again = run_command(train(1, 0, "part", "--steps 12 --resume auto"));
  ASSERT_EQ(again.exit_code, 0) << again.output;
  EXPECT_NE(again.output.find("resuming after step 10"), std::string::npos) << again.output;
  EXPECT_EQ(metrics("part").back(), metrics("whole").back());
}

// Steps are read one late on a GPU, and the tensor is named all the same.
TEST_F(CudaTrain, AnOverflowNamesItsTensor) {
  std::string command = train(1, 0, "overflow", "--steps 4");
  command.replace(command.find("--lr 1e-3"), 9, "--lr 1e30");
  const CommandResult result = run_command(command);
  bool named = false;
  for (const nlohmann::json& line : metrics("overflow"))
    named = named || (line.contains("first_bad_tensor") && line.at("first_bad_tensor") != "");
  EXPECT_TRUE(named) << result.output;
}

TEST_F(CudaTrain, AKilledProcessEndsTheOthers) {
  CommandResult result;
  std::thread job(
      [&] { result = run_command(launch(2, train(2, 3, "killed", "--steps 1000000 --deadline 20"))); });
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (lines("killed") < 10 && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  const auto begin = std::chrono::steady_clock::now();
  run_command("pkill -9 -n -f '^" + kZeno + " train.*--out " + path("killed") + "'");
  job.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15)) << result.output;
  EXPECT_NE(result.output.find("this rank was in"), std::string::npos) << result.output;
}

}  // namespace
}  // namespace zeno::cuda_tests
