// Checkpoints with real runs: what goes on from one ends with the bits of a run that never stopped, whatever
// the number of ranks and the stage, and damage is named.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "tests/support/cli_runs.h"

namespace zeno::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using nlohmann::json;

class Resume : public CliRuns {
 protected:
  std::string train(const std::string& out, const std::string& more) const {
    return train_on_cpu(out, "--seq-len 32 --lr 1e-2 --schedule cosine --warmup 3 " + more);
  }
  // A run of 12 steps that was saved after steps 5 and 10, as if it had been killed after the 10th.
  void make_stopped(const std::string& out, const std::string& more) const {
    fs::remove_all(path(out));
    expect_ok(train(out, more + " --steps 12 --save-every 5 --keep-last 0"));
    ASSERT_TRUE(fs::exists(path(out + "/checkpoints/step-00000010/manifest.json")));
    fs::remove_all(path(out + "/checkpoints/step-00000012"));
  }
};

TEST_F(Resume, EndsWithTheSameBits) {
  for (const std::string dtype : {"fp32", "bf16", "fp16"}) {
    const std::string setting = "--ranks 2 --micro-batch 2 --dtype " + dtype;
    expect_ok(train("whole", setting + " --stage 3 --steps 12"));
    make_stopped("part", setting + " --stage 3");
    EXPECT_EQ(outcome("part"), outcome("whole")) << "saving changed the run";
    for (int stage : {0, 3}) {
      copy("part", "again");
      expect_ok(train("again", setting + " --steps 12 --resume auto --stage " + std::to_string(stage)));
      EXPECT_EQ(outcome("again"), outcome("whole")) << dtype << " stage " << stage;
    }
  }
}

TEST_F(Resume, OnAnotherNumberOfRanksTheBatchStaysAndReproducibleRunsKeepTheirBits) {
  expect_ok(train("whole", "--ranks 1 --micro-batch 1 --grad-accum 4 --reproducible --steps 12"));
  make_stopped("part", "--ranks 4 --micro-batch 1 --stage 3 --reproducible");
  for (int ranks : {1, 2, 4}) {
    copy("part", "again");
    expect_ok(
        train("again", "--reproducible --stage 2 --steps 12 --resume auto --ranks " + std::to_string(ranks)));
    EXPECT_EQ(outcome("again"), outcome("whole")) << ranks;
  }
  const CommandResult three = run_command(train("part", "--reproducible --steps 12 --resume auto --ranks 3"));
  EXPECT_EQ(three.exit_code, 2);
  EXPECT_NE(three.output.find("4 sequences per step, which cannot be split evenly over 3 ranks"),
            std::string::npos)
      << three.output;
}

TEST_F(Resume, ADifferentRunIsRefused) {
  make_stopped("part", "--micro-batch 2");
  for (const auto& [more, word] : std::map<std::string, std::string>{
           {"--seed 7", "--seed is 7 now, expected 42"},
           {"--optimizer Lion", "the optimizer is Lion now, expected Adam"},
           {"--train-batch 4 --micro-batch 2", "train_batch_size is 4 now, expected 2"}}) {
    const CommandResult result = run_command(train("part", "--steps 12 --resume auto " + more));
    EXPECT_EQ(result.exit_code, 2) << result.output;
    EXPECT_NE(result.output.find(word), std::string::npos) << result.output;
  }
}

// A later --resume would take the old ones for the new run's.
TEST_F(Resume, CheckpointsOfAnEarlierRunAreNotMixedWithNewOnes) {
  make_stopped("part", "--micro-batch 2");
  const CommandResult result = run_command(train("part", "--micro-batch 2 --steps 3"));
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_NE(result.output.find("up to step-00000010"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("--resume auto"), std::string::npos) << result.output;
}

// Going back: those after the checkpoint gone back to would be taken by the next --resume auto.
TEST_F(Resume, NewerCheckpointsAreNotLeftForALaterRun) {
  make_stopped("part", "--micro-batch 2");
  const std::string back = train(
      "part", "--micro-batch 2 --steps 8 --save-every 5 --resume " + path("part/checkpoints/step-00000005"));
  const CommandResult refused = run_command(back);
  EXPECT_EQ(refused.exit_code, 2) << refused.output;
  EXPECT_NE(refused.output.find("up to step-00000010"), std::string::npos) << refused.output;
  fs::rename(path("part/checkpoints/step-00000010"), path("moved"));
  expect_ok(back);
}

// Times of steps are all that a trace has.
TEST_F(Resume, ATraceOfNoStepsIsNotWritten) {
  expect_ok(train("part", "--micro-batch 2 --steps 4 --save-every 2"));
  const CommandResult again =
      expect_ok(train("part", "--micro-batch 2 --steps 4 --resume auto --trace " + path("trace.json")));
  EXPECT_NE(again.output.find("no step was run"), std::string::npos) << again.output;
}

// Neither damage everywhere nor a limit of this process is a reason to begin anew, over what is there.
TEST_F(Resume, OnlyWithoutCheckpointsARunStartsAnew) {
  make_stopped("part", "--ranks 16 --stage 3 --micro-batch 1");
  const std::string again =
      train("part", "--ranks 1 --grad-accum 16 --micro-batch 1 --steps 12 --resume auto");
  const CommandResult limited = run_command("ulimit -n 14; " + again);
  EXPECT_EQ(limited.exit_code, 5) << limited.output;
  EXPECT_NE(limited.output.find("Too many open files"), std::string::npos) << limited.output;
  for (const char* step : {"step-00000005", "step-00000010"})
    dir_.write(std::string("part/checkpoints/") + step + "/manifest.json", "{}");
  const CommandResult damaged = run_command(again);
  EXPECT_EQ(damaged.exit_code, 3) << damaged.output;
  EXPECT_NE(damaged.output.find("no complete checkpoint is left"), std::string::npos) << damaged.output;
  EXPECT_TRUE(fs::exists(path("part/checkpoints/step-00000010/rank-0007-of-0016.safetensors")));
}

TEST_F(Resume, DamageIsNamedAndAnOlderCheckpointTaken) {
  const std::string setting = "--ranks 2 --stage 3 --micro-batch 1";
  make_stopped("part", setting);
  const std::string file = path("part/checkpoints/step-00000010/rank-0001-of-0002.safetensors");
  {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(std::streamoff(fs::file_size(file) - 100));
    bytes.put('!');
  }
  const CommandResult shown = run_command(kZeno + " inspect " + path("part/checkpoints/step-00000010"));
  EXPECT_EQ(shown.exit_code, 3);
  EXPECT_NE(shown.output.find("rank-0001-of-0002.safetensors"), std::string::npos) << shown.output;
  EXPECT_NE(shown.output.find("step-00000005 is complete"), std::string::npos) << shown.output;
  const CommandResult named =
      run_command(train("other", setting + " --steps 12 --resume " + path("part/checkpoints/step-00000010")));
  EXPECT_EQ(named.exit_code, 3) << named.output;
  expect_ok(train("whole", setting + " --steps 12"));
  const CommandResult result = run_command(train("part", setting + " --steps 12 --resume auto"));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("resuming after step 5"), std::string::npos) << result.output;
  EXPECT_EQ(outcome("part"), outcome("whole"));
}

// Whatever is wrong with a checkpoint, inspect says where, what is in there, and what to use instead.
TEST_F(Resume, InspectNamesFileExtentAndTensors) {
  make_stopped("part", "--ranks 2 --stage 3 --micro-batch 1");
  const std::string rank = "rank-0001-of-0002.safetensors";
  struct Damage {
    std::string file;
    int64_t at;  // negative: from the end; 0: the file is gone
    std::vector<std::string> words;
  };
  for (const auto& [file, at, words] :
       {Damage{rank, -2, {rank, "damaged: got checksum", "/lm_head.weight@"}},
        Damage{rank, 9, {rank, "18 extents, of blocks.0.mlp.down.weight"}},
        Damage{rank, 0, {rank, "missing", "18 extents, of blocks.0.mlp.down.weight"}},
        Damage{"manifest.json", 100, {"manifest.json", "damaged"}},
        Damage{"manifest.json", 0, {"the checkpoint is not complete"}}}) {
    copy("part", "hurt");
    const fs::path hurt = path("hurt/checkpoints/step-00000010") + "/" + file;
    if (at == 0) {
      fs::remove(hurt);
    } else {
      const auto place = std::streamoff(at > 0 ? at : int64_t(fs::file_size(hurt)) + at);
      std::fstream bytes(hurt, std::ios::in | std::ios::out | std::ios::binary);
      bytes.seekg(place);
      const char byte = char(bytes.get() ^ 4);
      bytes.seekp(place);
      bytes.put(byte);
    }
    const CommandResult shown = run_command(kZeno + " inspect " + path("hurt/checkpoints/step-00000010/"));
    EXPECT_EQ(shown.exit_code, 3) << shown.output;
    EXPECT_NE(shown.output.find("step-00000005 is complete"), std::string::npos) << shown.output;
    for (const std::string& word : words)
      EXPECT_NE(shown.output.find(word), std::string::npos) << word << " is missing in " << shown.output;
  }
}

TEST_F(Resume, ACheckpointIsExportedAsAModel) {
  make_stopped("part", "--ranks 2 --stage 3 --micro-batch 1");
  expect_ok(kZeno + " export " + path("part/checkpoints/step-00000010") + " " + path("exported"));
  expect_ok(train("ten", "--ranks 2 --stage 0 --micro-batch 1 --steps 12 --resume " +
                             path("part/checkpoints/step-00000010")));
  EXPECT_EQ(run_command(kZeno + " inspect " + path("exported")).exit_code, 0);
  EXPECT_TRUE(fs::exists(path("exported/tokenizer.json")));
}

// Killed at random moments, also in the middle of saves: the next start finds a whole checkpoint or begins
// anew, and the end is always the same.
TEST_F(Resume, KilledAtAnyMomentTheEndIsTheSame) {
  const std::string setting = "--ranks 2 --stage 3 --micro-batch 2 --steps 60 --save-every 3";
  expect_ok(train("whole", setting));
  std::mt19937 random(7);
  const std::string command = "exec " + train("killed", setting + " --resume auto >/dev/null 2>&1");
  int kills = 0;
  for (int attempt = 0; attempt < (ZENO_FULL_TESTS ? 200 : 12); ++attempt) {
    const pid_t child = fork();
    if (child == 0) {
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + random() % 200));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) ++kills;
    if (!WIFSIGNALED(status) && ZENO_FULL_TESTS) fs::remove_all(path("killed"));
  }
  EXPECT_GT(kills, 0);
  expect_ok(train("killed", setting + " --resume auto"));
  EXPECT_EQ(outcome("killed"), outcome("whole"));
}

}  // namespace
}  // namespace zeno::test
