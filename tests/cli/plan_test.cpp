// `zeno plan` as a user runs it: what it plans, what it prints, what it refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/command.h"
#include "tests/support/temp_dir.h"

namespace zeno::test {
namespace {

using nlohmann::json;

CommandResult plan(const std::string& arguments) {
  return run_command(std::string(ZENO_BINARY_DIR) + "/zeno plan " + arguments);
}

json planned(const std::string& arguments) {
  const CommandResult result = plan("--json " + arguments);
  EXPECT_EQ(result.exit_code, 0) << arguments << "\n" << result.output;
  return json::parse(result.output);
}

const std::string kLlama = "--arch llama --hidden 64 --layers 2 --heads 4 --kv-heads 2 --vocab 260 ";

TEST(PlanCli, ABareNumberGivesThePapersStates) {
  const std::string base = "--params 7.5e9 --ranks 64 --dtype bf16 --stage ";
  for (const auto& [stage, gb] : {std::pair{0, 120.0}, {1, 31.4}, {2, 16.6}, {3, 1.88}}) {
    const json answer = planned(base + std::to_string(stage));
    EXPECT_NEAR(double(answer.at("model_states_bytes")) / 1e9, gb, stage == 3 ? 0.01 : 0.1);
    const json& device = answer.at("bytes").at("device");
    EXPECT_GT(device.at("activations"), 0);
    EXPECT_FALSE(answer.contains("rows")) << "the stage is given: this is the plan of one setting";
  }
  EXPECT_EQ(planned("--params 7.5B --ranks 64 --stage 1").at("model_states_bytes"),
            planned(base + "1").at("model_states_bytes"));
  EXPECT_DOUBLE_EQ(planned("--params 2B --stage 0 --dtype fp32").at("model_states_bytes"), 2e9 * 16);
}

TEST(PlanCli, AnArchitectureIsPlannedLikeItsFolder) {
  const TempDir dir;
  const std::string folder = (dir.path() / "model").string();
  const CommandResult made =
      run_command(std::string(ZENO_BINARY_DIR) + "/zeno init " + kLlama + "--out " + folder);
  ASSERT_EQ(made.exit_code, 0) << made.output;
  const std::string run = " --ranks 2 --stage 2 --dtype bf16 --seq-len 32 --micro-batch 2 --device cpu";
  EXPECT_EQ(planned(kLlama + run).at("bytes"), planned("--model " + folder + run).at("bytes"));
}

TEST(PlanCli, TheTableGoesThroughWhatIsOpen) {
  const json table = planned("--params 1.3B --ranks 8 --device-mem 24GB --host-mem 256GB");
  std::set<std::string> offloads, recomputes;
  std::set<int> stages, batches;
  for (const json& row : table.at("rows")) {
    stages.insert(int(row.at("stage")));
    offloads.insert(row.at("offload"));
    recomputes.insert(row.at("recompute"));
    batches.insert(int(row.at("micro_batch")));
    EXPECT_EQ(bool(row.at("fits")), double(row.at("bytes").at("device").at("total")) <= 24e9 &&
                                        double(row.at("bytes").at("host").at("total")) <= 256e9 / 8)
        << row.at("flags");
  }
  EXPECT_EQ(stages, (std::set{0, 1, 2, 3}));
  EXPECT_EQ(offloads, (std::set<std::string>{"none", "optimizer cpu", "optimizer+param cpu", "nvme"}));
  EXPECT_EQ(recomputes, (std::set<std::string>{"none", "selective", "full"}));
  EXPECT_GT(batches.size(), 2u);
  const json full = planned("--params 1.3B --ranks 8 --micro-batch 2 --recompute full");
  for (const json& row : full.at("rows")) {
    EXPECT_EQ(row.at("micro_batch"), 2);
    EXPECT_EQ(row.at("recompute"), "full");
  }
  const json offloaded = planned("--params 1.3B --ranks 8 --stage 2 --all --offload-optimizer cpu");
  for (const json& row : offloaded.at("rows")) {
    EXPECT_EQ(row.at("stage"), 2);
    EXPECT_GT(row.at("bytes").at("host").at("moments"), 0);
  }
}

TEST(PlanCli, ARowIsThePlanOfItsFlags) {
  const std::string base = kLlama + "--ranks 4 --dtype bf16 --seq-len 64 ";
  int checked = 0;
  const json table = planned(base);
  for (size_t i = 0; i < table.at("rows").size(); i += 23, ++checked) {
    const json& row = table.at("rows")[i];
    std::string flags = row.at("flags");
    if (flags.find("nvme") != std::string::npos) flags += " --nvme-path /tmp";
    EXPECT_EQ(planned(base + flags).at("bytes"), row.at("bytes")) << flags;
  }
  EXPECT_GT(checked, 4);
}

TEST(PlanCli, TextIsOneLinePerRowAndHtmlAPage) {
  const TempDir dir;
  const std::string page = (dir.path() / "plan.html").string();
  const CommandResult result =
      plan("--params 7.5B --ranks 64 --device-mem 80GB --compare deepspeed --html " + page);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("best first"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("DeepSpeed's estimator"), std::string::npos);
  EXPECT_EQ(result.output.find('\x1b'), std::string::npos) << "no colours where there is no terminal";
  EXPECT_LT(std::count(result.output.begin(), result.output.end(), '\n'), 35);
  std::ifstream file(page);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_NE(text.find("plan-device"), std::string::npos);
}

TEST(PlanCli, ATrillionParametersOnAThousandRanks) {
  const json answer = planned("--params 1T --ranks 1024 --stage 3");
  EXPECT_NEAR(double(answer.at("model_states_bytes")) / 1e9, 15.6, 0.1);
}

TEST(PlanCli, APipelineHasALineForEachStage) {
  const std::string run =
      "--params 70e9 --ranks 64 --pipe 8 --stage 1 --grad-accum 16 --recompute full "
      "--machine h100-8x8 --seq-len 2048 ";
  const json answer = planned(run);
  const json& stages = answer.at("stages");
  ASSERT_EQ(stages.size(), 8u);
  double params = 0, most = 0;
  for (const json& stage : stages) {
    params += double(stage.at("params"));
    most = std::max(most, double(stage.at("bytes").at("device").at("total")));
  }
  EXPECT_NEAR(params, 70e9, 1);
  EXPECT_EQ(double(answer.at("bytes").at("device").at("total")), most);
  EXPECT_EQ(answer.at("bytes").at("device"),
            stages.at(size_t(answer.at("neediest_stage").at("device"))).at("bytes").at("device"));
  EXPECT_NEAR(double(answer.at("tokens_per_s")) * double(answer.at("step_seconds")), 8 * 16 * 2048, 1);
  EXPECT_GT(double(answer.at("time").at("exposed_seconds").at("other stages")), 0);
  const CommandResult text = plan(run);
  for (const char* part :
       {"mesh: pipe 8 × inner 8", "\n    7 ", "needs most: stage 0 of device", "waiting for other stages"})
    EXPECT_NE(text.output.find(part), std::string::npos) << part << "\n" << text.output;
  EXPECT_FALSE(planned("--params 1B --ranks 2 --stage 1 --machine h100-8").contains("stages"));
}

TEST(PlanCli, SharedSequencesHaveTheirTokens) {
  const std::string base = "--params 1B --ranks 16 --stage 3 --machine h100-8x2 --micro-batch 2 ";
  const auto tokens = [](const json& answer) {
    return double(answer.at("tokens_per_s")) * double(answer.at("step_seconds"));
  };
  const json flat = planned(base + "--seq-len 8192"), shared = planned(base + "--seq-len 8192 --context 4");
  EXPECT_NEAR(tokens(flat), 16 * 2 * 8192, 1);
  EXPECT_NEAR(tokens(shared), 4 * 2 * 8192, 1);
  const auto activations = [](const json& answer) {
    return double(answer.at("bytes").at("device").at("activations"));
  };
  EXPECT_NEAR(activations(shared) / activations(flat), 0.25, 0.05);
}

// Tables, advice and sweeps stay on the mesh that was asked for.
TEST(PlanCli, AMeshThatIsGivenIsKept) {
  const std::string mesh = "--params 1B --machine h100-8 --pipe 2 --context 2 --seq-len 2048 --grad-accum 4 ";
  for (const json& row : planned(mesh + "--device-mem 80GB").at("rows")) EXPECT_GT(row.at("tokens_per_s"), 0);
  const json advice = planned(mesh + "--goal fastest");
  const std::string command = advice.at("command");
  EXPECT_NE(command.find("--pipe 2 --context 2"), std::string::npos) << command;
  EXPECT_NE(command.find("--seq-len 2048"), std::string::npos) << command;
  EXPECT_EQ(planned(mesh + "--sweep 8,32").size(), 2u);
}

TEST(PlanCli, WrongInputIsTwoAndOneLine) {
  const auto expect = [](const std::string& arguments, const std::string& part) {
    const CommandResult result = plan(arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments << "\n" << result.output;
    EXPECT_NE(result.output.find(part), std::string::npos) << arguments << "\n" << result.output;
    EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
  };
  expect("", "--model DIR");
  expect("--params seven", "--params: got 'seven'");
  expect("--params=-5", "--params: got '-5'");
  expect("--params 0", "--params: got '0'");
  expect("--params 1e30", "--params");
  expect("--params 7B --model /nowhere", "--model and --params");
  expect("--params 7B --hidden 64", "--params and --hidden");
  expect("--params 7B --lora-rank 8", "--model or --arch");
  expect("--arch llama --hidden 64 --layers 2 --heads 4", "without --vocab");
  expect("--hidden 64", "without --arch");
  expect("--arch llama --hidden 65 --layers 2 --heads 4 --vocab 300", "not a multiple");
  expect("--arch mamba --hidden 64 --layers 2 --heads 4 --vocab 300", "mamba");
  expect("--params 7B --ranks 0", "--ranks: got 0");
  expect("--params 7B --ranks -3", "--ranks");
  expect("--params 7B --stage 4", "--stage");
  expect("--params 7B --device-mem 80", "80GB");
  expect("--params 7B --device-mem lots", "80GB");
  expect("--params 7B --host-mem -1GB", "80GB");
  expect("--params 7B --compare megatron", "--compare");
  expect("--params 7B --ranks-per-host 0", "--ranks-per-host");
  expect("--params 7B --ranks 12 --pipe 8", "expected a multiple of 8");
  expect("--params 7B --ranks 6 --pipe 2 --context 2", "expected a multiple of 4");
  expect(kLlama + "--ranks 8 --pipe 8 --stage 1", "got 8 stages, expected at most");
  expect("--params 7B --ranks 8 --pipe 2 --stage 1 --order vertical", "leave out --order vertical");
}

}  // namespace
}  // namespace zeno::test
