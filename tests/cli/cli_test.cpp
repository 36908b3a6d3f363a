// zeno as a user runs it: real processes, real files, exit codes, one-line errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/mpirun.h"
#include "tests/support/plain_flags.h"
#include "tests/support/temp_dir.h"
#include "zeno/device/device.h"

namespace zeno::test {
namespace {

class Cli : public testing::Test {
 protected:
  void SetUp() override {
    const CommandResult made =
        zeno("init --arch llama --hidden 32 --layers 2 --heads 4 --kv-heads 2 --vocab 260 --out " + model());
    ASSERT_EQ(made.exit_code, 0) << made.output;
    std::string text;
    for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i * i) + " of a book about numbers\n";
    book_ = dir_.write("book.txt", text);
  }

  CommandResult zeno(const std::string& arguments) const { return run_command(kZeno + " " + arguments); }
  CommandResult train(const std::string& arguments) const {
    return zeno("train " + base() + (arguments.find("--steps") == std::string::npos ? " --steps 3" : "") +
                plain_flags(arguments) + arguments);
  }
  std::string base() const {
    return "--model " + model() + " --data " + book_ + " --seq-len 32 --device cpu";
  }
  std::string model() const { return path("model"); }
  std::string path(const std::string& name) const { return (dir_.path() / name).string(); }

  std::vector<nlohmann::json> metrics(const std::string& out) const {
    std::vector<nlohmann::json> lines;
    std::ifstream file(path(out) + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  std::string hash(const std::string& out) const { return metrics(out).back().at("weights_hash"); }

  void expect_failure(const CommandResult& result, int exit_code,
                      const std::vector<std::string>& parts) const {
    EXPECT_EQ(result.exit_code, exit_code) << result.output;
    for (const std::string& part : parts) {
      EXPECT_NE(result.output.find(part), std::string::npos)
          << "'" << part << "' is missing in: " << result.output;
    }
  }
  // Replaces text in a file of the model.
  void edit(const std::string& name, const std::string& from, const std::string& to) const {
    std::ifstream in(model() + "/" + name, std::ios::binary);
    std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    std::ofstream(model() + "/" + name, std::ios::binary) << text;
  }

  TempDir dir_;
  std::string book_;
};

TEST_F(Cli, TrainsAndWritesAFolderThatTrainsAgain) {
  const CommandResult first = train("--out " + path("out") + " --trace " + path("trace.json"));
  ASSERT_EQ(first.exit_code, 0) << first.output;
  const auto lines = metrics("out");
  ASSERT_EQ(lines.size(), 4u);
  for (const char* key :
       {"step", "loss", "grad_norm", "lr", "tokens", "tokens_per_s", "step_ms", "loss_scale", "skipped",
        "exposed_comm_ms", "bytes_gathered", "bytes_reduced", "peak_bytes"}) {
    EXPECT_TRUE(lines[0].contains(key)) << key;
  }
  EXPECT_EQ(lines.back().at("event"), "done");
  std::ifstream trace(path("trace.json"));
  EXPECT_GT(nlohmann::json::parse(trace).at("traceEvents").size(), 10u);
  const CommandResult again = zeno("train --model " + path("out") + " --data " + book_ +
                                   " --seq-len 32 --steps 1 --out " + path("again") + plain_flags(""));
  ASSERT_EQ(again.exit_code, 0) << again.output;
  EXPECT_LT(metrics("again")[0].at("loss"), metrics("out")[0].at("loss"));
}

TEST_F(Cli, EveryStageAndLauncherGivesTheSameBits) {
  std::vector<std::string> hashes;
  for (const char* stage : {"0", "1", "2", "3"}) {
    const std::string out = std::string("threads") + stage;
    const CommandResult run =
        train("--ranks 2 --stage " + std::string(stage) + " --dtype bf16 --out " + path(out));
    ASSERT_EQ(run.exit_code, 0) << run.output;
    hashes.push_back(hash(out));
  }
  const CommandResult mpi = run_command(mpirun(2) + kZeno + " train " + base() + " --steps 3" +
                                        plain_flags("") + "--stage 3 --dtype bf16 --out " + path("mpi"));
  ASSERT_EQ(mpi.exit_code, 0) << mpi.output;
  hashes.push_back(hash("mpi"));
  EXPECT_EQ(std::count(hashes.begin(), hashes.end(), hashes[0]), 5);
}

TEST_F(Cli, GroupsOfShardsGiveTheBitsOfTheFlatRun) {
  const auto outcome = [&](const std::string& name, const std::string& flags) {
    const CommandResult run = train("--ranks 4 --stage 3 --out " + path(name) + " " + flags);
    EXPECT_EQ(run.exit_code, 0) << run.output;
    return hash(name);
  };
  const std::string flat = outcome("flat", "");
  EXPECT_EQ(outcome("mics", "--shard-group 2"), flat);
  EXPECT_EQ(outcome("hpz", "--param-group 2"), flat);
  const CommandResult wrong = train("--ranks 4 --stage 3 --shard-group 3 --out " + path("wrong"));
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_NE(wrong.output.find("4 ranks in groups of 3"), std::string::npos) << wrong.output;
}

TEST_F(Cli, ReproducibleRunsDoNotDependOnTheNumberOfRanks) {
  const auto config = dir_.write(
      "ds.json",
      "{ // comments and trailing commas are fine\n \"reproducible\": true, \"train_batch_size\": 8,\n"
      " \"train_micro_batch_size_per_gpu\": 1, \"zero_optimization\": {\"stage\": 2,}, }");
  std::vector<std::string> hashes;
  for (int ranks : {1, 2, 4}) {
    const std::string out = "r" + std::to_string(ranks);
    const CommandResult run =
        train("--config " + config.string() + " --ranks " + std::to_string(ranks) + " --out " + path(out));
    ASSERT_EQ(run.exit_code, 0) << run.output;
    hashes.push_back(hash(out));
  }
  EXPECT_EQ(std::count(hashes.begin(), hashes.end(), hashes[0]), 3);
}

TEST_F(Cli, Fp16StartsWithOverflowsAndRecovers) {
  const auto config = dir_.write(
      "ds.json",
      R"({"fp16": {"enabled": true, "initial_scale_power": 40, "hysteresis": 1}, "train_micro_batch_size_per_gpu": 1})");
  const CommandResult run =
      train("--config " + config.string() + " --ranks 2 --stage 2 --steps 40 --out " + path("out"));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const auto lines = metrics("out");
  EXPECT_TRUE(lines[0].at("skipped"));
  EXPECT_NE(run.output.find("is not finite"), std::string::npos);
  EXPECT_FALSE(lines[39].at("skipped"));
  EXPECT_EQ(double(lines[1].at("loss_scale")) * 2, double(lines[0].at("loss_scale")));
}

TEST_F(Cli, PlanTellsTheBytesTheRunUses) {
  const CommandResult plan = zeno("plan --json --model " + model() +
                                  " --ranks 2 --stage 2 --dtype bf16 --seq-len 32 --micro-batch 1");
  ASSERT_EQ(plan.exit_code, 0) << plan.output;
  const auto json = nlohmann::json::parse(plan.output);
  const CommandResult run = train("--ranks 2 --stage 2 --dtype bf16 --micro-batch 1 --out " + path("out"));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_EQ(json.at("bytes").at("device").at("total"), metrics("out")[0].at("peak_bytes").at("device"));
  EXPECT_GT(int64_t(json.at("model_states_bytes")), 0);
}

TEST_F(Cli, PlanCountsAdaptersAndWhatIsFrozen) {
  const auto bytes_of = [&](const std::string& more) {
    const CommandResult plan = zeno("plan --model " + model() + " --ranks 1 --seq-len 32 --json " + more);
    EXPECT_EQ(plan.exit_code, 0) << plan.output;
    return nlohmann::json::parse(plan.output).at("model_states_bytes").get<int64_t>();
  };
  const int64_t full = bytes_of(""), lora = bytes_of("--lora-rank 2 --lora-targets q_proj"),
                whole = bytes_of("--lora-rank 2 --lora-targets q_proj --modules-to-save lm_head");
  EXPECT_LT(lora, full / 2);
  EXPECT_GT(whole, lora);
  EXPECT_LT(whole, full);
}

TEST_F(Cli, DoctorLooksAtTheMachine) {
  const CommandResult here = zeno("doctor " + model());
  EXPECT_EQ(here.exit_code, 0) << here.output;
  for (const char* word : {"cpu ", "memory ", "gpu ", "launcher ", "mpi ", "disk ", "limits "})
    EXPECT_NE(here.output.find(word), std::string::npos) << word << "\n" << here.output;
  EXPECT_NE(zeno("doctor /no/such/folder").output.find("No such file"), std::string::npos);
}

TEST_F(Cli, PrintConfigSaysWhereValuesComeFrom) {
  const auto config = dir_.write("ds.json",
                                 "{\"zero_optimization\": {\"stage\": 2,\n\"reduce_bucket_size\": 5e8}, "
                                 "\"train_micro_batch_size_per_gpu\": 1}");
  const CommandResult run = train("--print-config --lr 3e-4 --config " + config.string());
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_NE(run.output.find("flag --lr"), std::string::npos) << run.output;
  EXPECT_NE(run.output.find("ds.json:2"), std::string::npos);
}

TEST_F(Cli, PrintConfigShowsWhatAutoBecomes) {
  const auto config =
      dir_.write("ds.json",
                 "{\"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": \"auto\"}, "
                 "\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": \"auto\"}");
  const std::string shown =
      train("--print-config --ranks 2 --micro-batch 3 --grad-accum 2 --config " + config.string()).output;
  const auto value_of = [&](const std::string& key) {
    std::istringstream line(shown.substr(std::min(shown.find(key), shown.size())));
    std::string name, value;
    line >> name >> value;
    return value;
  };
  EXPECT_EQ(value_of("train_batch_size"), "12") << shown;
  EXPECT_EQ(value_of("zero_optimization.reduce_bucket_size"), "1024") << shown;  // hidden 32, squared
}

// A flag wins over the file in both directions, and what is found only when the run begins is told as well.
TEST_F(Cli, FlagsMaySayFalseAndWhatTheyOverrideIsNamed) {
  const auto config = dir_.write("ds.json",
                                 "{\"zero_optimization\": {\"stage\": 1, \"overlap_comm\": true}, "
                                 "\"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 2, "
                                 "\"gradient_accumulation_steps\": 4}");
  const std::string flags = "--steps 1 --micro-batch 4 --overlap-comm=false --config " + config.string();
  const std::string shown = train("--print-config " + flags).output;
  const size_t at = shown.find("zero_optimization.overlap_comm");
  ASSERT_NE(at, std::string::npos) << shown;
  EXPECT_NE(shown.substr(at, 100).find("false"), std::string::npos) << shown;
  const CommandResult run = train(flags + " --out " + path("overridden"));
  EXPECT_EQ(run.exit_code, 0) << run.output;
  for (const char* part :
       {"train_micro_batch_size_per_gpu 2 is replaced by --micro-batch 4",
        "overlap_comm true is replaced by --overlap-comm false", "becomes 2: train_batch_size 8"})
    EXPECT_NE(run.output.find(part), std::string::npos) << part << run.output;
}

TEST_F(Cli, UsageErrorsAreTwo) {
  expect_failure(zeno("train --modle x"), 2, {"--modle", "did you mean --model"});
  expect_failure(zeno("train --step=3"), 2, {"--step=3", "did you mean --steps"});
  expect_failure(zeno("frobnicate"), 2, {"unknown command frobnicate"});
  expect_failure(zeno("trian --model x"), 2, {"unknown command trian", "did you mean train"});
  expect_failure(train("--stage 4 --out " + path("o")), 2, {"--stage"});
  expect_failure(train(""), 2, {"--out"});
  const std::string anywhere = "train --model " + model() + " --data " + book_ + " --out " + path("o");
  expect_failure(zeno(anywhere + " --device tpu"), 2, {"--device", "tpu", "cuda"});
  if (device_count(Device::Kind::cuda) == 0) {
    expect_failure(zeno(anywhere + " --device cuda"), 2, {"--device cuda", "no usable GPU", "--device cpu"});
    expect_failure(zeno(anywhere + " --matmul-dtype fp8 --dtype bf16"), 2, {"fp8", "--device cuda"});
    expect_failure(zeno("plan --model " + model() + " --device cuda --recompute auto"), 2, {"no GPU"});
  }
  const auto misspelt =
      dir_.write("a.json", "{\"zero_optimization\": {\"stage\": 2, \"overlap_com\": true}}");
  expect_failure(train("--config " + misspelt.string() + " --out " + path("o")), 2,
                 {"overlap_com", "overlap_comm", "a.json:1"});
  const auto broken = dir_.write("b.json", "{\"zero_optimization\": ");
  expect_failure(train("--config " + broken.string() + " --out " + path("o")), 2, {"b.json:1"});
  expect_failure(train("--save-every -5 --out " + path("o")), 2, {"save"});
}

TEST_F(Cli, MalformedModelsAreThree) {
  expect_failure(zeno("train --model /nowhere --data x --out " + path("o")), 3, {"/nowhere"});
  edit("config.json", "\"num_attention_heads\": 4", "\"num_attention_heads\": 5");
  expect_failure(train("--out " + path("o")), 3, {"config.json", "5"});
}

TEST_F(Cli, TruncatedWeightsAreThree) {
  std::filesystem::resize_file(model() + "/model.safetensors",
                               std::filesystem::file_size(model() + "/model.safetensors") - 100);
  expect_failure(train("--ranks 2 --stage 3 --out " + path("o")), 3, {"model.safetensors"});
}

TEST_F(Cli, LyingHeadersAreThree) {
  edit("model.safetensors", "model.norm.weight", "model.norm.wrong_");
  expect_failure(train("--out " + path("o")), 3, {"model.norm.weight"});
}

TEST_F(Cli, TokensBeyondTheVocabularyAreThree) {
  // A model with fewer tokens than its tokenizer has: the id is named.
  edit("config.json", "\"vocab_size\": 260", "\"vocab_size\": 100");
  expect_failure(train("--out " + path("o")), 3, {"100"});
}

TEST_F(Cli, AJobThatDoesNotFitIsFourAndSaysWhatWould) {
  const CommandResult big =
      zeno("init --arch llama --hidden 64 --layers 2 --heads 4 --vocab 260 --max-positions 2000000 --out " +
           path("long"));
  ASSERT_EQ(big.exit_code, 0) << big.output;
  const CommandResult run =
      zeno("train --model " + path("long") + " --data generated --out " + path("o") +
           " --seq-len 1000000 --micro-batch 64 --steps 1 --device-mem 20GiB --no-auto");
  expect_failure(run, 4, {"needs", "may use 20.00 GiB", "--recompute full --micro-batch", "fits"});
}

TEST_F(Cli, AnUnwritableOutputIsFive) {
  expect_failure(train("--out /proc/zeno-cannot-be-here"), 5, {"/proc/zeno"});
}

TEST_F(Cli, InspectChecksEveryWeight) {
  const CommandResult good = zeno("inspect " + model());
  EXPECT_EQ(good.exit_code, 0);
  EXPECT_NE(good.output.find("blocks.1.mlp.down.weight"), std::string::npos) << good.output;
  std::fstream file(model() + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-4, std::ios::end);
  const uint32_t nan = 0x7fc00000;
  file.write(reinterpret_cast<const char*>(&nan), 4);
  file.close();
  expect_failure(zeno("inspect " + model()), 3, {"nan"});
}

TEST_F(Cli, InspectTakesAFolderThatHasOnlyAConfig) {
  std::filesystem::create_directory(path("bare"));
  std::filesystem::copy(model() + "/config.json", path("bare/config.json"));
  const CommandResult shown = zeno("inspect " + path("bare"));
  EXPECT_EQ(shown.exit_code, 0) << shown.output;
  for (const char* part :
       {"blocks.1.mlp.down.weight", "llama: 2 blocks, hidden 32", "this folder has no weights"})
    EXPECT_NE(shown.output.find(part), std::string::npos) << shown.output;
  dir_.write("bare/pytorch_model.bin", "x");
  expect_failure(zeno("inspect " + path("bare")), 3, {"pytorch_model.bin is not supported"});
}

}  // namespace
}  // namespace zeno::test
