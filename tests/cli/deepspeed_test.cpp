// Checkpoints of real DeepSpeed (tools/golden_deepspeed.py) on the command line: looked at, made a model of,
// and trained on with the losses that DeepSpeed itself had next.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/command.h"
#include "tests/support/golden.h"
#include "tests/support/temp_dir.h"
#include "zeno/checkpoint/safetensors_folder.h"

namespace zeno::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kDeepspeedFiles = std::string(ZENO_SOURCE_DIR) + "/tests/golden/deepspeed";

class DeepSpeedCli : public testing::Test {
 protected:
  struct Outcome {
    std::vector<double> losses;
    std::string hash;
  };

  std::string path(const std::string& name) const { return (dir_.path() / name).string(); }

  // As DeepSpeed trained, from the fourth step to the sixth.
  std::string train(const std::string& run, const std::string& out, const std::string& more) const {
    const bool bf16 = run.find("bf16") != std::string::npos;
    const json config = {
        {"gradient_clipping", 1.0},
        {"optimizer",
         {{"type", "AdamW"},
          {"params",
           {{"lr", 0.01}, {"betas", {0.9, 0.95}}, {"eps", 1e-8}, {"weight_decay", bf16 ? 0.0 : 0.1}}}}}};
    const std::string file = dir_.write("config.json", config.dump()).string();
    return kZeno + " train --model " + kDeepspeedFiles + "/model --data " + kDeepspeedFiles +
           "/data.jsonl --seq-len 12 --packing none --device cpu --steps 6 --cache " + path("cache") +
           " --config " + file + " --out " + path(out) + " --resume " + kDeepspeedFiles + "/" + run + " " +
           more;
  }
  Outcome outcome(const std::string& out) const {
    Outcome found;
    std::ifstream file(path(out) + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const json parsed = json::parse(line);
      if (parsed.contains("loss")) {
        EXPECT_EQ(parsed.at("step").get<size_t>(), found.losses.size() + 4);
        found.losses.push_back(parsed.at("loss"));
      }
      if (parsed.contains("weights_hash")) found.hash = parsed.at("weights_hash");
    }
    return found;
  }
  Outcome continued(const std::string& run, const std::string& more) const {
    fs::remove_all(path("out"));
    const CommandResult result = run_command(train(run, "out", more));
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_NE(result.output.find("resuming after step 3 from DeepSpeed's"), std::string::npos)
        << result.output;
    return outcome("out");
  }
  static void expect_near(const Outcome& got, const std::string& run, double tolerance) {
    const json all = json::parse(std::ifstream(kDeepspeedFiles + "/losses.json"));
    const std::vector<double> theirs = all.at("losses").at(run);
    ASSERT_EQ(got.losses.size(), 3u) << run;
    for (size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(got.losses[i], theirs[i + 3], tolerance) << run << " step " << i + 4;
  }

  TempDir dir_;
};

TEST_F(DeepSpeedCli, InspectShowsTensorsStatesAndWhereTheRunStood) {
  const CommandResult shown = run_command(kZeno + " inspect " + kDeepspeedFiles + "/stage3_tied");
  EXPECT_EQ(shown.exit_code, 0) << shown.output;
  for (const char* part :
       {"model.layers.1.self_attn.q_proj.weight", "[24, 9] master first_moment second_moment",
        "lm_head.weight", "same as model.embed_tokens.weight",
        "DeepSpeed 0.19.8 checkpoint of step 3: stage 3, written by 2 ranks, 2052 parameters, 1161 with "
        "moments"})
    EXPECT_NE(shown.output.find(part), std::string::npos) << part << " in " << shown.output;
  const CommandResult universal = run_command(kZeno + " inspect " + kDeepspeedFiles + "/universal_stage2");
  EXPECT_NE(universal.output.find("step 3: universal, from stage 2"), std::string::npos) << universal.output;
}

TEST_F(DeepSpeedCli, ExportWritesTheWeightsThatDeepSpeedHad) {
  const Golden expected("deepspeed/expected.safetensors");
  for (const std::string run : {"stage0_bf16", "stage1_fp32", "stage2_tied", "stage3_fp32", "stage3_tied"}) {
    const std::string base = run.ends_with("tied") ? "/model_tied" : "/model";
    const CommandResult result = run_command(kZeno + " export " + kDeepspeedFiles + "/" + run + " " +
                                             path(run) + " --dtype fp32 --base " + kDeepspeedFiles + base);
    ASSERT_EQ(result.exit_code, 0) << result.output;
    const checkpoint::WeightFolder folder(path(run));
    EXPECT_EQ(folder.tensors().size(), run.ends_with("tied") ? 20u : 21u);
    for (const auto& [name, tensor] : folder.tensors()) {
      std::vector<float> values(static_cast<size_t>(tensor.info->count));
      tensor.read(0, tensor.info->count, values.data());
      EXPECT_EQ(values, expected.floats(run + "/master/" + name)) << run << " " << name;
    }
  }
  const CommandResult without =
      run_command(kZeno + " export " + kDeepspeedFiles + "/stage3_fp32 " + path("none"));
  EXPECT_EQ(without.exit_code, 2);
  EXPECT_NE(without.output.find("--base"), std::string::npos) << without.output;
  EXPECT_FALSE(fs::exists(path("none")));
}

TEST_F(DeepSpeedCli, TrainingGoesOnWithTheLossesOfDeepSpeed) {
  for (const std::string run : {"stage0_fp32", "stage1_fp32", "stage2_fp32", "stage3_fp32"})
    expect_near(continued(run, "--ranks 2 --stage 3"), run, 1e-5);
  expect_near(continued("universal_stage2", "--ranks 2 --stage 1"), "stage2_fp32", 1e-5);
  expect_near(continued("universal_stage3/global_step3_universal", "--ranks 1"), "stage3_fp32", 1e-5);
  for (const std::string run : {"stage1_bf16", "stage1_bf16_accum", "stage2_bf16", "stage3_bf16"})
    expect_near(continued(run, "--ranks 2 --stage 2 --dtype bf16"), run, 2e-3);
  // DeepSpeed's Adam had counted one update more there, so its bias correction is another.
  expect_near(continued("stage0_bf16", "--ranks 2 --stage 2 --dtype bf16"), "stage0_bf16", 2e-2);
}

TEST_F(DeepSpeedCli, OnAnyNumberOfRanksAndInAnyTierWithTheSameBits) {
  const Outcome one = continued("stage3_fp32", "--ranks 1 --stage 0 --reproducible");
  const std::string on_disk = "--stage 2 --offload-optimizer nvme --nvme-path " + path("swap");
  std::filesystem::create_directory(path("swap"));
  for (const std::string& more : {std::string("--stage 1"), std::string("--stage 3"), on_disk}) {
    const Outcome two = continued("stage3_fp32", "--ranks 2 --reproducible " + more);
    EXPECT_EQ(two.losses, one.losses) << more;
    EXPECT_EQ(two.hash, one.hash) << more;
  }
}

TEST_F(DeepSpeedCli, WhatTheRunSavesIsAnOrdinaryCheckpoint) {
  const Outcome whole = continued("stage2_fp32", "--ranks 2 --save-every 1 --keep-last 0");
  fs::remove_all(path("out/checkpoints/step-00000006"));
  std::string again = train("stage2_fp32", "out", "--ranks 2 --save-every 1");
  again.replace(again.find("--resume " + kDeepspeedFiles + "/stage2_fp32"), 9 + kDeepspeedFiles.size() + 12,
                "--resume auto");
  const CommandResult result = run_command(again);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("resuming after step 5"), std::string::npos) << result.output;
  EXPECT_EQ(outcome("out").hash, whole.hash);
}

TEST_F(DeepSpeedCli, WhatCannotGoOnIsNamed) {
  const std::pair<std::string, const char*> cases[] = {
      {train("stage0_weights", "out", "--micro-batch 2"), "no Adam moments"},
      {train("stage2_tied", "out", ""), "has no tensor model.layers.0"},  // was frozen there
      {train("stage2_fp32", "out", "--lora-rank 2"), "trains an adapter"}};
  for (const auto& [command, word] : cases) {
    const CommandResult result = run_command(command);
    EXPECT_EQ(result.exit_code, 3) << result.output;
    EXPECT_NE(result.output.find(word), std::string::npos) << result.output;
  }
}

}  // namespace
}  // namespace zeno::test
