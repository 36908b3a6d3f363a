// Ranks that see other files: real processes, each with its own copies, as on several hosts.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/support/cli_runs.h"
#include "tests/support/mpirun.h"
#include "zeno/checkpoint/safetensors_writer.h"
#include "zeno/train/file_digest.h"

namespace zeno::test {
namespace {

class Agreement : public CliRuns {
 protected:
  explicit Agreement(int hidden = 32) : CliRuns(hidden) {}
  void SetUp() override {
    CliRuns::SetUp();
    std::ostringstream lines;
    for (int i = 0; i < 400; ++i) lines << "{\"text\":\"line " << i << " of the data\"}\n";
    std::ofstream(path("data.jsonl")) << lines.str();
    std::ofstream(path("ds.json")) << R"({"optimizer":{"type":"AdamW","params":{"lr":0.001}}})";
    copy("model", "other");
    copy("data.jsonl", "other.jsonl");
    copy("ds.json", "other.json");
  }
  // `flags` of all ranks; where they say MODEL, DATA or CONFIG rank 1 has its own.
  CommandResult run_apart(const std::string& flags, const std::string& out,
                          const std::string& command = "train", int ranks = 2) {
    const std::string script = path("rank.sh");
    std::ofstream(script)
        << "cd " << dir_.path().string() << "\n"
        << "MODEL=model DATA=data.jsonl CONFIG=ds.json\n"
        << "[ $OMPI_COMM_WORLD_RANK = 1 ] && MODEL=other DATA=other.jsonl CONFIG=other.json\n"
        << "exec " << kZeno << " " << command << " --device cpu --model $MODEL --seq-len 32 " << flags
        << (command == "train" ? " --steps 2 --out " + out : "") << "\n";
    return run_command(mpirun(ranks) + "timeout 60 sh " + script);
  }
  std::string usual(const std::string& more = "") const {
    return "--data $DATA --config $CONFIG --micro-batch 2 " + more;
  }
  // One line that names what differs; nothing was trained.
  void expect_refused(const CommandResult& run, int code, const std::vector<std::string>& parts) {
    EXPECT_EQ(run.exit_code, code) << run.output;
    std::string said;
    std::istringstream text(run.output);
    int lines = 0;
    for (std::string line; std::getline(text, line);) {
      if (line.find("error: ") == std::string::npos) continue;
      said = line;
      ++lines;
    }
    EXPECT_EQ(lines, 1) << run.output;
    EXPECT_LE(said.size(), 600u);
    for (const std::string& part : parts)
      EXPECT_NE(said.find(part), std::string::npos) << part << "\n" << run.output;
    EXPECT_FALSE(std::filesystem::exists(path("out"))) << "the run has begun";
  }
  // Another value for one weight, nothing else.
  void change_byte(const std::string& name, int64_t from_end) {
    std::fstream file(path(name), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-from_end, std::ios::end);
    const int byte = file.get();
    file.seekp(-from_end, std::ios::end);
    file.put(char(byte ^ 1));
  }
  void replace_text(const std::string& name, const std::string& from, const std::string& to) {
    std::ostringstream text;
    text << std::ifstream(path(name)).rdbuf();
    std::ofstream(path(name)) << std::regex_replace(text.str(), std::regex(from), to);
    std::ostringstream now;
    now << std::ifstream(path(name)).rdbuf();
    ASSERT_NE(text.str(), now.str()) << name << " has no " << from;
  }
};

const std::string kWho = "rank 1 on ";

TEST_F(Agreement, CopiesElsewhereAreFine) {
  const CommandResult apart = run_apart(usual(), path("out"));
  EXPECT_EQ(apart.exit_code, 0) << apart.output;
  expect_ok("cd " + dir_.path().string() + " && " + mpirun(2) + kZeno +
            " train --device cpu --model model --seq-len 32 --data data.jsonl --config ds.json --micro-batch "
            "2 --steps 2 "
            "--out " +
            path("together"));
  EXPECT_EQ(outcome("out"), outcome("together"));
}

TEST_F(Agreement, OtherData) {
  if (!ZENO_FULL_TESTS) GTEST_SKIP() << "make test-full";
  replace_text("other.jsonl", "line 200 of", "line 299 of");
  expect_refused(run_apart(usual(), path("out")), 3, {kWho, "other.jsonl", "data.jsonl", "bytes (hash "});
}

TEST_F(Agreement, PartOfTheData) {
  expect_ok("head -300 " + path("data.jsonl") + " > " + path("other.jsonl"));
  expect_refused(run_apart(usual(), path("out")), 3, {kWho, "other.jsonl", "data.jsonl"});
}

TEST_F(Agreement, OtherEvaluationData) {
  if (!ZENO_FULL_TESTS) GTEST_SKIP() << "make test-full";
  replace_text("other.jsonl", "line 200 of", "line 299 of");
  expect_refused(
      run_apart("--data " + path("data.jsonl") + " --eval-data $DATA --config $CONFIG --micro-batch 2",
                path("out")),
      3, {kWho, "other.jsonl"});
}

TEST_F(Agreement, OtherWeightsAtEveryStage) {
  change_byte("other/model.safetensors", 2222);
  for (const char* stage : {"0", "1", "2", "3"}) {
    if (!ZENO_FULL_TESTS && stage[0] != '3') continue;
    expect_refused(run_apart(usual(std::string("--stage ") + stage), path("out")), 3,
                   {kWho, "other/model.safetensors", " (model/model.safetensors): "});
  }
}

TEST_F(Agreement, OtherPosition) {
  if (!ZENO_FULL_TESTS) GTEST_SKIP() << "make test-full";
  replace_text("other/config.json", "(\"rope_theta\": )[0-9.]+", "$015000.0");
  expect_refused(run_apart(usual(), path("out")), 3, {kWho, "other/config.json"});
}

TEST_F(Agreement, OtherTemplate) {
  if (!ZENO_FULL_TESTS) GTEST_SKIP() << "make test-full";
  std::ofstream(path("other/chat_template.jinja"), std::ios::app) << " ";
  expect_refused(run_apart(usual(), path("out")), 3, {kWho, "other/chat_template.jinja"});
}

TEST_F(Agreement, OtherTokenizer) {
  if (!ZENO_FULL_TESTS) GTEST_SKIP() << "make test-full";
  replace_text("other/tokenizer.json", "\"version\": *\"1.0\"", "\"version\": \"1.00\"");
  expect_refused(run_apart(usual(), path("out")), 3, {kWho, "other/tokenizer.json"});
}

TEST_F(Agreement, AFileThatOneHostLacks) {
  if (!ZENO_FULL_TESTS) GTEST_SKIP() << "make test-full";
  std::filesystem::remove(path("other/generation_config.json"));
  expect_refused(run_apart(usual(), path("out")), 3,
                 {kWho, "other/generation_config.json", "no such file against"});
  std::filesystem::remove(path("other.jsonl"));
  copy("model", "other");
  expect_refused(run_apart(usual(), path("out")), 3,
                 {kWho, " cannot read --data: other.jsonl: no such file"});
}

// What nothing reads may be on one host only.
TEST_F(Agreement, FilesThatNothingReadsMayDiffer) {
  for (const char* name : {"consolidated.safetensors", "vocab.json", "merges.txt", "added_tokens.json"})
    std::ofstream(path("other/") + name) << "of another program";
  const CommandResult run = run_apart(usual(), path("out"));
  EXPECT_EQ(run.exit_code, 0) << run.output;
}

TEST_F(Agreement, ATemplateOfOneHost) {
  if (!ZENO_FULL_TESTS) GTEST_SKIP() << "make test-full";
  std::filesystem::create_directory(path("other/additional_chat_templates"));
  std::ofstream(path("other/additional_chat_templates/tools.jinja")) << "{{ messages }}";
  expect_refused(run_apart(usual(), path("out")), 3,
                 {kWho, "additional_chat_templates/tools.jinja", " against no such file"});
}

TEST_F(Agreement, AChatTemplateThatOneRankDoesNotFind) {
  std::ofstream(path("other/mine.jinja")) << "{{ messages }}";
  expect_refused(run_apart(usual("--chat-template $MODEL/mine.jinja"), path("out")), 3,
                 {"[train] other/mine.jinja differs between " + kWho, " against no such file; "});
}

// Each rank resumes from its own path of the checkpoint.
TEST_F(Agreement, PathsToResumeFromMayDiffer) {
  const CommandResult first = run_apart(usual("--save-every 1"), path("out"));
  ASSERT_EQ(first.exit_code, 0) << first.output;
  for (const char* link : {"model/from", "other/from"})
    std::filesystem::create_directory_symlink("../out/checkpoints/step-00000002", path(link));
  const CommandResult run = run_apart(usual("--resume $MODEL/from"), path("out"));
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_NE(run.output.find("after step 2 from model/from"), std::string::npos) << run.output;
}

TEST_F(Agreement, OtherConfigOrFlags) {
  replace_text("other.json", "0.001", "0.002");
  expect_refused(run_apart(usual(), path("out")), 2, {kWho, "optimizer.params.lr", "0.002 against 0.001"});
  if (!ZENO_FULL_TESTS) return;
  copy("ds.json", "other.json");
  expect_refused(run_apart(usual("--seed $OMPI_COMM_WORLD_RANK"), path("out")), 2,
                 {kWho, "zeno.seed", "1 against 0"});
}

TEST_F(Agreement, AnotherProgram) {
  if (!ZENO_FULL_TESTS) GTEST_SKIP() << "make test-full";
  std::ofstream(path("zeno.sh")) << "cp " << kZeno << " " << path("zeno") << " && printf x >> "
                                 << path("zeno") << "\n";
  expect_ok("sh " + path("zeno.sh"));
  const std::string script = path("rank.sh");
  std::ofstream(script) << "Z=" << kZeno << "; [ $OMPI_COMM_WORLD_RANK = 1 ] && Z=" << path("zeno")
                        << "\nexec $Z train --device cpu "
                        << "--model " << path("model") << " --data generated --steps 2 --out " << path("out")
                        << "\n";
  expect_refused(run_command(mpirun(2) + "sh " + script), 2,
                 {kWho, path("zeno"), "install the same program"});
}

TEST_F(Agreement, EvaluationCompares) {
  if (!ZENO_FULL_TESTS) GTEST_SKIP() << "make test-full";
  replace_text("other.jsonl", "line 200 of", "line 299 of");
  expect_refused(run_apart("--data $DATA", "", "eval"), 3, {kWho, "other.jsonl"});
}

// The same file today, but the tokens of one host are of what it was: same path, size and time.
TEST_F(Agreement, ACacheOfOtherTokens) {
  const std::string flags =
      " --device cpu --no-auto --lr 1e-3 --seq-len 32 --micro-batch 2 --steps 2 --model " + path("model") +
      " --data " + path("data.jsonl");
  copy("data.jsonl", "before.jsonl");
  expect_ok("touch -r " + path("before.jsonl") + " " + path("data.jsonl"));
  expect_ok(kZeno + " train --cache " + path("cache1") + " --out " + path("first") + flags);
  expect_ok("sed -i 's/line 200 of/line 299 of/' " + path("data.jsonl") + " && touch -r " +
            path("before.jsonl") + " " + path("data.jsonl"));
  const CommandResult run =
      run_command(mpirun(2) + "sh -c 'exec " + kZeno + " train --cache " + path("cache") +
                  "$OMPI_COMM_WORLD_RANK --out " + path("out") + flags + "'");
  EXPECT_EQ(run.exit_code, 3) << run.output;
  EXPECT_NE(run.output.find("rank 1 on "), std::string::npos) << run.output;
  EXPECT_NE(run.output.find("reads different tokens from --data than rank 0"), std::string::npos)
      << run.output;
  EXPECT_NE(run.output.find("delete --cache on "), std::string::npos) << run.output;
}

// A model that is too large to be read whole at the start: one of its shards holds 300 MiB that no parameter
// uses.
class AgreementOnLoad : public Agreement {
 protected:
  AgreementOnLoad() : Agreement(128) {}
  void SetUp() override {
    Agreement::SetUp();
    nlohmann::json shards{{"padding", "padding.safetensors"}};
    const auto weights = checkpoint::SafetensorsFile::open(path("model/model.safetensors"));
    for (const auto& tensor : weights.tensors()) shards[tensor.name] = "weights.safetensors";
    for (const std::string folder : {"model", "other"}) {
      std::filesystem::rename(path(folder + "/model.safetensors"), path(folder + "/weights.safetensors"));
      std::ofstream(path(folder + "/model.safetensors.index.json"))
          << nlohmann::json{{"weight_map", shards}}.dump();
      write_padding(folder, 300 << 20);
    }
  }
  // Zeros, as a hole.
  void write_padding(const std::string& folder, uint64_t bytes) {
    const std::string header =
        checkpoint::safetensors_header({{"padding", DType::f32, {int64_t(bytes / 4)}}}, {}, 8);
    const std::string file = path(folder + "/padding.safetensors");
    std::ofstream(file, std::ios::binary) << header;
    std::filesystem::resize_file(file, header.size() + bytes);
  }
};

TEST_F(AgreementOnLoad, AWeightThatNoSampleSees) {
  const train::DigestRule rule = train::digest_rule(300 << 20, 12);
  ASSERT_FALSE(rule.whole);
  const std::string weights = "other/weights.safetensors";
  const std::string before = train::digest_file(path(weights), rule);
  int64_t at = 40'002;
  for (;; at += 1024) {
    change_byte(weights, at);
    if (train::digest_file(path(weights), rule) == before) break;
    change_byte(weights, at);
  }
  const CommandResult run =
      run_apart("--data data.jsonl --config $CONFIG --micro-batch 2 --stage 0", path("out"));
  EXPECT_EQ(run.exit_code, 3) << run.output;
  EXPECT_NE(run.output.find(kWho), std::string::npos) << run.output;
  EXPECT_NE(run.output.find("read different weights for "), std::string::npos) << run.output;
  EXPECT_FALSE(std::filesystem::exists(path("out/model.safetensors")));
}

// One host reads its files whole, the other samples: the file to blame is the one of another size.
TEST_F(AgreementOnLoad, AFileThatChangesHowOthersAreRead) {
  if (!ZENO_FULL_TESTS) GTEST_SKIP() << "make test-full";
  write_padding("other", 200 << 20);
  expect_refused(run_apart("--data data.jsonl --config $CONFIG --micro-batch 2", path("out")), 3,
                 {kWho, "other/padding.safetensors", "209,715,", "314,572,"});
}

// Paths are the same, files are not: each rank has a file system of its own.
class AgreementApart : public Agreement {
 protected:
  void SetUp() override {
    if (run_command("unshare -m true").exit_code != 0) GTEST_SKIP() << "may not make a mount namespace";
    Agreement::SetUp();
  }
  // Rank 1 sees `theirs` in the place of `mine`.
  CommandResult run_with(const std::string& mine, const std::string& theirs, const std::string& flags) {
    const std::string script = path("apart.sh");
    std::ofstream(script) << "[ $OMPI_COMM_WORLD_RANK = 1 ] && mount --bind " << path(theirs) << " "
                          << path(mine) << "\n"
                          << "exec " << kZeno
                          << " train --device cpu --no-auto --lr 1e-3 --seq-len 32 --micro-batch 2 --model "
                          << path("model") << " --out " << path("out") << " " << flags << "\n";
    return run_command(mpirun(2) + "unshare -m sh " + script);
  }
};

TEST_F(AgreementApart, AFileWithTheSameName) {
  replace_text("other/config.json", "(\"rope_theta\": )[0-9.]+", "$015000.0");
  const CommandResult run = run_with("model/config.json", "other/config.json", "--data generated --steps 2");
  expect_refused(run, 3, {"[train] " + path("model/config.json") + " differs between " + kWho});
}

TEST_F(AgreementApart, AnyFileWithTheSameName) {
  if (!ZENO_FULL_TESTS) GTEST_SKIP() << "make test-full";
  change_byte("other/model.safetensors", 2222);
  std::ofstream(path("other/chat_template.jinja"), std::ios::app) << " ";
  std::ofstream(path("other/tokenizer.json"), std::ios::app) << " ";
  replace_text("other.jsonl", "line 200 of", "line 299 of");
  const std::string flags = "--data " + path("data.jsonl") + " --steps 2";
  for (const std::string name :
       {"model/model.safetensors", "model/chat_template.jinja", "model/tokenizer.json", "data.jsonl"}) {
    const std::string theirs = name == "data.jsonl" ? "other.jsonl" : "other" + name.substr(5);
    expect_refused(run_with(name, theirs, flags), 3, {"[train] " + path(name) + " differs between " + kWho});
  }
}

TEST_F(AgreementApart, AnOutputFolderThatIsNotShared) {
  std::filesystem::create_directory(path("empty"));
  std::filesystem::create_directory(path("out"));
  const CommandResult run = run_with("out", "empty", "--data generated --steps 2 --save-every 1");
  EXPECT_EQ(run.exit_code, 2) << run.output;
  for (const char* part : {"[train] rank 1 on ", " does not see the --out folder of rank 0, ",
                           "need a folder that all hosts share"})
    EXPECT_NE(run.output.find(part), std::string::npos) << part << "\n" << run.output;
  EXPECT_FALSE(std::filesystem::exists(path("out/metrics.csv"))) << "the run has begun";
}

TEST_F(AgreementApart, ACheckpointThatOneHostDoesNotSee) {
  const std::string flags = "--data generated --save-every 2 ";
  ASSERT_EQ(run_with("other", "other", flags + "--steps 2").exit_code, 0);
  std::filesystem::create_directory(path("empty"));
  const CommandResult run = run_with("out/checkpoints", "empty", flags + "--steps 4 --resume auto");
  EXPECT_EQ(run.exit_code, 3) << run.output;
  for (const char* part : {"[resume] rank 1 on ", "step-00000002/manifest.json", "no such file against"})
    EXPECT_NE(run.output.find(part), std::string::npos) << part << "\n" << run.output;
}

TEST_F(AgreementApart, ADeepSpeedCheckpointThatOneHostDoesNotSee) {
  std::filesystem::copy(std::string(ZENO_SOURCE_DIR) + "/tests/golden/deepspeed/stage2_fp32", path("ds"),
                        std::filesystem::copy_options::recursive);
  std::filesystem::create_directory(path("empty"));
  const CommandResult run = run_with("ds", "empty", "--data generated --steps 6 --resume " + path("ds"));
  expect_refused(
      run, 3,
      {"DeepSpeed's checkpoint of --resume differs between " + kWho, ": none against global_step3; "});
}

// Weights and moments of a universal checkpoint lie in folders below its own.
TEST_F(AgreementApart, OtherMomentsOfAUniversalCheckpoint) {
  for (const char* name : {"ds", "theirs"})
    std::filesystem::copy(std::string(ZENO_SOURCE_DIR) + "/tests/golden/deepspeed/universal_stage3",
                          path(name), std::filesystem::copy_options::recursive);
  const std::string moments = "global_step3_universal/zero/lm_head.weight/exp_avg.pt";
  const auto bytes = int64_t(std::filesystem::file_size(path("theirs/" + moments)));
  change_byte("theirs/" + moments, bytes / 2);
  const CommandResult run = run_with("ds", "theirs", "--data generated --steps 6 --resume " + path("ds"));
  expect_refused(run, 3, {path("ds/" + moments) + " differs between " + kWho});
}

}  // namespace
}  // namespace zeno::test
