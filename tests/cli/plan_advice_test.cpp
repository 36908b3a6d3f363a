// Advice that can be followed: its flags and its config give the plan it names, every refusal to start
// suggests a setting that does start, and --auto trains with what it chose.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/cli_runs.h"

namespace zeno::test {
namespace {

using nlohmann::json;

json answer_of(const std::string& arguments) {
  // Notes about the config go to stderr.
  const CommandResult result = run_command("(" + kZeno + " plan " + arguments + " --json 2>/dev/null)");
  EXPECT_EQ(result.exit_code, 0) << arguments;
  return json::parse(result.output);
}

TEST(PlanAdvice, FlagsAndConfigGiveThePlanThatWasPromised) {
  const TempDir dir;
  const std::string config = (dir.path() / "ds.json").string();
  const std::string model = "--params 7e9 --seq-len 2048 ";
  for (const char* setting : {"--machine h100-8 --goal fastest", "--machine h200-1 --goal smallest",
                              "--machine a100-8 --goal largest-batch", "--machine v100-16 --goal fastest"}) {
    const json advice = answer_of(model + setting + " --write-config " + config);
    const json& chosen = advice.at("chosen");
    const std::string machine = std::string(setting).substr(0, std::string(setting).find(" --goal"));
    for (const std::string& way : {std::string(chosen.at("flags")), "--config " + config}) {
      const json plan = answer_of(model + machine + " " + way + " --nvme-path /tmp");
      EXPECT_EQ(plan.at("bytes").at("device").at("total"), chosen.at("bytes").at("device")) << setting << way;
      EXPECT_NEAR(plan.at("tokens_per_s"), chosen.at("tokens_per_s"),
                  1e-6 * double(chosen.at("tokens_per_s")));
    }
  }
}

TEST(PlanAdvice, SweepsToSixteenThousand) {
  const json points =
      answer_of("--params 70e9 --machine h100-8 --recompute full --micro-batch 4 --sweep 64,1024,16384");
  ASSERT_EQ(points.size(), 3u);
  EXPECT_GT(double(points[0].at("goodput")), double(points[2].at("goodput")));
  EXPECT_GT(double(points[2].at("good_tokens_per_s")), double(points[0].at("good_tokens_per_s")));
}

// Seconds add up, and a slower network shows where it hurts.
TEST(PlanAdvice, TimeSaysWhatWaits) {
  const std::string base = "--params 13e9 --machine h100-8x8 --stage 3 --micro-batch 1 --seq-len 2048 ";
  const json fast = answer_of(base).at("time"), slow = answer_of(base + "--between-rate 5").at("time");
  for (const json& time : {fast, slow}) {
    double sum = time.at("compute_seconds");
    for (const auto& [what, seconds] : time.at("exposed_seconds").items()) sum += double(seconds);
    EXPECT_NEAR(sum, time.at("step_seconds"), 1e-9);
  }
  EXPECT_GT(double(slow.at("step_seconds")), 2 * double(fast.at("step_seconds")));
  EXPECT_EQ(slow.at("bottleneck"), "network");
  ASSERT_FALSE(slow.at("exposed_by_unit").empty());
  EXPECT_NE(std::string(slow.at("exposed_by_unit")[0].at("unit")).find("blocks"), std::string::npos);
}

TEST(PlanAdvice, WrongInput) {
  const auto refused = [](const std::string& arguments, const std::string& part) {
    const CommandResult result = run_command(kZeno + " plan --params 7e9 " + arguments);
    EXPECT_EQ(result.exit_code, 2) << result.output;
    EXPECT_NE(result.output.find(part), std::string::npos) << result.output;
  };
  refused("--goal fastest", "--machine h100-8");
  refused("--machine h100-8 --goal cheapest", "expected fastest, largest-batch or smallest");
  refused("--machine h300-8", "expected h200-1, h100-8, a100-8, v100-16");
  refused("--machine h100-8 --sweep 8,many", "--sweep: got '8,many'");
}

class Refusals : public CliRuns {
 protected:
  Refusals() : CliRuns(64) {}
};

// From next to nothing to nearly enough.
TEST_F(Refusals, SuggestASettingThatThenStarts) {
  int suggested = 0;
  for (const char* size : {"6MB", "7MB", "8MB", "9MB", "10MB", "12MB", "14MB"}) {
    const std::string run =
        fmt::format("--seq-len 128 --micro-batch 6 --steps 2 --ranks 2 --device-mem {} ", size);
    const CommandResult refused = run_command(train_on_cpu("out", run));
    if (refused.exit_code == 0) continue;
    EXPECT_EQ(refused.exit_code, 4) << refused.output;
    const size_t begin = refused.output.find("; --"), end = refused.output.find(" needs", begin);
    if (begin == std::string::npos) {
      EXPECT_NE(refused.output.find("no setting fits"), std::string::npos) << refused.output;
      continue;
    }
    std::string flags = refused.output.substr(begin + 2, end - begin - 2);
    if (const size_t folder = flags.find("FOLDER"); folder != std::string::npos)
      flags.replace(folder, 6, path("disk"));
    // A flag that is given twice: the suggestion replaces ours.
    std::string without = run;
    for (const char* flag : {"--micro-batch 6 ", "--seq-len 128 "}) {
      const std::string name = std::string(flag).substr(0, std::string(flag).find(' ') + 1);
      if (flags.find(name) != std::string::npos) without.erase(without.find(flag), std::string(flag).size());
    }
    expect_ok(train_on_cpu(fmt::format("out{}", suggested), without + flags));
    ++suggested;
  }
  EXPECT_GE(suggested, 3);
}

class Auto : public CliRuns {
 protected:
  void SetUp() override {
    CliRuns::SetUp();
    std::filesystem::create_directory(path("cache"));
    measured(5e9);
  }
  // As if this machine had been measured: nothing has to be now.
  void measured(double link) const {
    std::ofstream(path("cache") + "/machine-cpu.json")
        << R"({"name": "two cores", "device": "cpu", "nodes": 1,
      "node_ranks": 1, "matmul_16bit_flops": 2e11, "matmul_fp32_flops": 2e11, "matmul_fp8_flops": 2e11,
      "attention_flops": 1e11, "memory_bytes_per_s": 3e10,
      "packed_elements_per_s": 1e10, "launch_s": 1e-6, "memory_bytes": 2.4e10,
      "host_memory_bytes": 2.4e10, "host_updates_per_s": 1e9, "host_link_bytes_per_s": 1e10,
      "disk_read_bytes_per_s": 3e9, "disk_write_bytes_per_s": 3e9, "disk_bytes": 1e11,
      "inside_bytes_per_s": )"
        << link << R"(, "inside_latency_s": 1e-5, "between_bytes_per_s": 0, "between_latency_s": 0})";
  }
  std::string train(const std::string& out, const std::string& more) const {
    return train_on_cpu(out, "--auto --seq-len 16 --steps 6 --cache " + path("cache") + " " + more);
  }
};

TEST_F(Auto, ChoosesWhatIsLeftOpenAndTrains) {
  const CommandResult free = expect_ok(train("free", "--ranks 2"));
  EXPECT_NE(free.output.find("chosen: --stage"), std::string::npos) << free.output;
  EXPECT_NE(free.output.find("of the plan"), std::string::npos) << free.output;  // measured beside planned
  // What is said stays, also the batch of a step.
  const CommandResult said = expect_ok(train("said", "--ranks 2 --stage 3 --train-batch 8"));
  EXPECT_NE(said.output.find("chosen: --stage 3"), std::string::npos) << said.output;
  EXPECT_EQ(outcome("said").size(), 7u);
  // And it resumes with the batch it had.
  expect_ok(train("saved", "--ranks 2 --save-every 3"));
  expect_ok(train("saved", "--ranks 2 --save-every 3 --resume auto"));
}

// Model, data and a folder are enough.
TEST_F(Auto, IsTheDefault) {
  const std::string command = kZeno + " train --model " + path("model") + " --data generated --out " +
                              path("out") + " --cache " + path("cache") +
                              " --device cpu --seq-len 16 --steps 3";
  const CommandResult run = expect_ok(command);
  size_t lines = 0;
  for (size_t at = 0; (at = run.output.find("chosen: ", at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(lines, 3u) << run.output;
  for (const char* part : {"learning rate 2e-05 (default for full training)", "cosine with 3 % warm-up",
                           "sequences per step", "chosen: --stage 0"})
    EXPECT_NE(run.output.find(part), std::string::npos) << part << run.output;
  const CommandResult shown = expect_ok(command + " --print-config");
  for (const char* part : {"default for full training", "chosen by the planner when the run starts"})
    EXPECT_NE(shown.output.find(part), std::string::npos) << part << shown.output;
  EXPECT_EQ(expect_ok(command + " --no-auto").output.find("chosen: "), std::string::npos);
  expect_ok(kZeno + " train --model " + path("model") + " --data generated --out " + path("lora") +
            " --cache " + path("cache") + " --device cpu --seq-len 16 --steps 1 --lora-rank 2");
}

TEST_F(Auto, WhereNothingFitsTheRefusalSaysWhatWould) {
  const CommandResult run = run_command(train("out", "--device-mem 1MB --host-mem 1MB --train-batch 8"));
  EXPECT_EQ(run.exit_code, 4) << run.output;
  for (const char* part : {"no setting fits", "needs", "may use"})
    EXPECT_NE(run.output.find(part), std::string::npos) << part << run.output;
  // Nor is this a question of memory.
  const CommandResult uneven = run_command(train("out", "--ranks 2 --train-batch 33"));
  EXPECT_EQ(uneven.exit_code, 2) << uneven.output;
  EXPECT_NE(uneven.output.find("--train-batch 32 or 34"), std::string::npos) << uneven.output;
}

// Another choice would sum in another order: the checkpoint's is kept, whatever the planner thinks now.
TEST_F(Auto, AResumedRunKeepsItsBits) {
  const std::string flags = "--ranks 2 --train-batch 16 --save-every 3 ";
  measured(1e12);
  const CommandResult first = expect_ok(train("whole", flags));
  measured(1e3);
  const CommandResult other = expect_ok(train("other", flags));
  const auto choice = [](const CommandResult& run) {
    const size_t at = run.output.find("chosen: --");
    return run.output.substr(at, run.output.find(": ", at + 8) - at);
  };
  EXPECT_NE(choice(first), choice(other));
  expect_ok(train("again", flags + "--resume " + path("whole") + "/checkpoints/step-00000003"));
  EXPECT_EQ(outcome("again").back(), outcome("whole").back());
  EXPECT_NE(outcome("other").back(), outcome("whole").back());
}

}  // namespace
}  // namespace zeno::test
