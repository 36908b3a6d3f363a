// Starts test_comm_mpi under mpirun and reads what its ranks say.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <string>

#include "tests/support/mpirun.h"
#include "tests/support/text.h"
#include "zeno/comm/world.h"

namespace zeno::comm {
namespace {

struct Result {
  int status = 0;
  std::string output;
  double seconds = 0;
};

Result run(const std::string& command) {
  const auto begin = std::chrono::steady_clock::now();
  Result result;
  FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 4096> buffer;
  while (const size_t got = fread(buffer.data(), 1, buffer.size(), pipe))
    result.output.append(buffer.data(), got);
  result.status = WEXITSTATUS(pclose(pipe));
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

Result mpirun(int ranks, const std::string& arguments, const std::string& flags = "") {
  return run(
      fmt::format("timeout 100 {} --mca btl self,vader,tcp --mca btl_vader_single_copy_mechanism none {} "
                  "{}/tests/test_comm_mpi {} 2>&1",
                  test::mpirun(ranks), flags, ZENO_BINARY_DIR, arguments));
}

using test::has;

// The line that begins with `start`, or "".
std::string line_of(const std::string& text, const std::string& start) {
  const size_t begin = text.find(start);
  return begin == std::string::npos ? "" : text.substr(begin, text.find('\n', begin) - begin);
}

class Mpi : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!mpi_available()) GTEST_SKIP() << "built without MPI";
  }
};

struct Shape {
  int ranks, ranks_per_host;
};
class MpiContract : public Mpi, public ::testing::WithParamInterface<Shape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, MpiContract,
                         ::testing::Values(Shape{1, 0}, Shape{2, 0}, Shape{3, 0}, Shape{4, 0}, Shape{5, 0},
                                           Shape{2, 1}, Shape{3, 2}, Shape{4, 2}),
                         [](const auto& test) {
                           return fmt::format("{}_ranks_{}_per_host", test.param.ranks,
                                              test.param.ranks_per_host);
                         });

TEST_P(MpiContract, Holds) {
  const Result result = mpirun(GetParam().ranks, fmt::format("contract {}", GetParam().ranks_per_host));
  EXPECT_EQ(result.status, 0) << result.output;
  for (int r = 0; r < GetParam().ranks; ++r) {
    EXPECT_TRUE(has(result.output, fmt::format("rank {} is done", r))) << result.output;
  }
}

// On one host the tree, on several MPI's own sums, in groups and in the whole world.
TEST_P(MpiContract, HoldsForNativeSums) {
  const Result result = mpirun(GetParam().ranks, fmt::format("native {}", GetParam().ranks_per_host));
  EXPECT_EQ(result.status, 0) << result.output;
  for (int r = 0; r < GetParam().ranks; ++r) {
    EXPECT_TRUE(has(result.output, fmt::format("rank {} is done", r))) << result.output;
  }
}

// Ranks 0..2 must say the same kind of thing about rank 3, wherever they live.
void expect_told(const Result& result, const std::string& text) {
  for (int r = 0; r < 3; ++r) {
    const std::string line = line_of(result.output, fmt::format("rank {} exits with", r));
    EXPECT_TRUE(has(line, "exits with 6: ")) << result.output;
    EXPECT_TRUE(has(line, text)) << result.output;
    EXPECT_TRUE(has(line, "this rank was in reduce_scatter of unit blocks.2 (operation 3 on 'reduce')"))
        << line;
  }
}

constexpr const char* kLetOthersSpeak =
    "--enable-recovery";  // mpirun kills all when one dies, unless told not to

TEST_F(Mpi, KilledRankIsNamed) {
  for (const int per_host : {0, 2}) {
    const Result result = mpirun(4, fmt::format("kill {}", per_host), kLetOthersSpeak);
    EXPECT_LT(result.seconds, 10);
    expect_told(result, "rank 3 failed: its process (");
  }
}

// In one of MPI's own sums, or before the others come to the next.
TEST_F(Mpi, KilledRankIsNamedInANativeSum) {
  const auto expect_named = [](const Result& result, const std::string& text) {
    EXPECT_LT(result.seconds, 30);  // half the deadline
    for (int r = 0; r < 3; ++r) {
      const std::string line = line_of(result.output, fmt::format("rank {} exits with", r));
      EXPECT_TRUE(has(line, "exits with 6: ") && has(line, text)) << result.output;
      EXPECT_TRUE(has(line, "this rank was in reduce_scatter of unit blocks.")) << result.output;
    }
  };
  expect_named(mpirun(4, "native-kill 2", kLetOthersSpeak), "rank 3 failed: its process (");
  expect_named(mpirun(4, "native-kill-inside 2", kLetOthersSpeak), "rank 3 failed: its process (");
  const Result alone = mpirun(4, "native-kill-inside 1 1500", kLetOthersSpeak);  // the deadline decides
  expect_named(alone, "nothing moved for 1500 ms: messages with rank");
  EXPECT_TRUE(has(line_of(alone.output, "rank 0 exits with"), "3 are open")) << alone.output;
}

// Nobody of its host is left to tell: the deadline decides.
TEST_F(Mpi, KilledRankThatWasAloneOnItsHost) {
  const Result result = mpirun(4, "kill 1 1500", kLetOthersSpeak);
  EXPECT_LT(result.seconds, 10);
  for (int r = 0; r < 3; ++r) {
    const std::string line = line_of(result.output, fmt::format("rank {} exits with", r));
    EXPECT_TRUE(has(line, "exits with 6: ") && has(line, "with rank 3 are open")) << result.output;
  }
}

// What a job ends with decides whether it is started again: the cause must not hide behind those it took
// along.
TEST_F(Mpi, TheJobEndsWithTheExitCodeOfTheRankThatFailed) {
  const Result result = mpirun(3, "throw 0");
  EXPECT_EQ(result.status, 3) << result.output;
}

TEST_F(Mpi, ThrowIsToldOnEveryHost) {
  for (const int per_host : {0, 2}) {
    const Result result = mpirun(4, fmt::format("throw {}", per_host), kLetOthersSpeak);
    expect_told(result, "rank 3 failed: row 7 of train.jsonl is broken");
    EXPECT_TRUE(has(result.output, "rank 3 exits with 3: row 7")) << result.output;
  }
}

// Without help of mpirun's flags: a failing rank waits until the others of its host have spoken before it
// goes.
TEST_F(Mpi, OthersSpeakBeforeTheLauncherEndsThem) {
  const Result result = mpirun(4, "throw 0");
  EXPECT_NE(result.status, 0);
  expect_told(result, "rank 3 failed: row 7 of train.jsonl is broken");
}

TEST_F(Mpi, StallIsNamed) {
  expect_told(mpirun(4, "stall 0 300", kLetOthersSpeak),
              "nothing moved for 300 ms: rank 3 has not arrived (last completed there: operation 2");
  const Result apart = mpirun(2, "stall 1 300", kLetOthersSpeak);
  EXPECT_TRUE(has(line_of(apart.output, "rank 0 exits with 6"), "messages with rank 1 are open"))
      << apart.output;
}

TEST_F(Mpi, MismatchIsNamed) {
  for (const int per_host : {0, 2}) {
    expect_told(mpirun(4, fmt::format("mismatch-unit {}", per_host), kLetOthersSpeak),
                "rank 3 issued reduce_scatter of unit head");
  }
}

TEST_F(Mpi, MismatchOfAnExchangeIsNamed) {
  for (const int per_host : {0, 1}) {
    const Result result = mpirun(3, fmt::format("mismatch-exchange {}", per_host), kLetOthersSpeak);
    for (int r = 0; r < 3; ++r) {
      const std::string line = line_of(result.output, fmt::format("rank {} exits with", r));
      EXPECT_TRUE(has(line, "exits with 6: ")) << result.output;
      EXPECT_TRUE(has(line, "rank 2 sends 8 fp32 elements to rank 0, which expects 7 (part 0)")) << line;
    }
  }
}

// Without mpirun, with these variables.
Result start_by_hand(const std::string& variables) {
  return run(
      fmt::format("timeout 100 env {} {} OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                  "{}/tests/test_comm_mpi contract 0 2>&1",
                  test::kWithoutLeaks, variables, ZENO_BINARY_DIR));
}

TEST_F(Mpi, TorchrunWithoutMpiIsExplained) {
  const Result result = start_by_hand("RANK=0 WORLD_SIZE=2");
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(has(result.output, "start with mpirun -n 2 or srun")) << result.output;
}

TEST_F(Mpi, SrunWithoutPmixIsExplained) {
  const Result result = start_by_hand("SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2");
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(has(result.output, "srun started rank 1 of 2 without PMIx")) << result.output;
  EXPECT_TRUE(has(result.output, "use srun --mpi=pmix")) << result.output;
}

// The second process never becomes a rank: MPI alone would wait for it for ever.
TEST_F(Mpi, StartThatHangsEndsInTime) {
  const Result result = mpirun(1, "contract 0 1000 1000 : -n 1 sleep 100");
  EXPECT_TRUE(has(result.output, "MPI has not started within 1.0 s on rank 0 of 2")) << result.output;
  EXPECT_EQ(result.status, 6) << result.output;
  EXPECT_LT(result.seconds, 60);
}

}  // namespace
}  // namespace zeno::comm
