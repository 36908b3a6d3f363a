#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <thread>

#include "failing_world.h"
#include "tests/support/sanitized.h"
#include "tests/support/text.h"
#include "zeno/base/disk_operation.h"
#include "zeno/base/error.h"
#include "zeno/comm/failure.h"

namespace zeno::comm {
namespace {

struct Failure {
  std::vector<std::string> messages;  // what each rank saw, "" for none
  std::string rethrown;
  ErrorKind kind = ErrorKind::internal;
};

Failure run_failing(int ranks, std::string_view way, const WorldOptions& options) {
  Failure outcome;
  outcome.messages.resize(size_t(ranks));
  try {
    run_thread_ranks(ranks, options, [&](World& world) {
      try {
        contract::Site site(world);
        contract::fail_in(site, way);
      } catch (const std::exception& error) {
        outcome.messages[size_t(world.rank())] = error.what();
        throw;
      }
    });
  } catch (const Error& error) {
    outcome.rethrown = error.what();
    outcome.kind = error.kind();
  }
  return outcome;
}

using test::has;

class ThreadFailure : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ThreadFailure, ::testing::Values(2, 3, 4));

TEST_P(ThreadFailure, ThrowIsToldToTheOthersAndRethrown) {
  const int n = GetParam();
  const Failure outcome = run_failing(n, "throw", {.deadline = std::chrono::seconds(30)});
  EXPECT_EQ(outcome.rethrown, "row 7 of train.jsonl is broken");
  EXPECT_EQ(outcome.kind, ErrorKind::data);
  for (int r = 0; r + 1 < n; ++r) {
    EXPECT_EQ(
        outcome.messages[size_t(r)],
        fmt::format(
            "[comm] rank {} failed: row 7 of train.jsonl is broken; this rank was in reduce_scatter of unit "
            "blocks.2 (operation 3 on 'reduce')",
            n - 1));
  }
}

// Ranks 1 and 3 are one group; ranks 0 and 2, which have nothing to do with it, end as well.
TEST(GroupFailure, EndsAllRanksAndNamesTheGroup) {
  std::vector<std::string> messages(4);
  const WorldOptions options{.deadline = std::chrono::milliseconds(400)};
  EXPECT_THROW(run_thread_ranks(4, options,
                                [&](World& world) {
                                  const int rank = world.rank();
                                  const std::vector<int> group{rank % 2, rank % 2 + 2};
                                  const auto comm = world.communicator("reduce", {}, group);
                                  Stream stream({.name = "reduce", .rank = rank});
                                  try {
                                    for (int op = 0; op < 2000; ++op) {
                                      if (rank == 3 && op == 2)
                                        std::this_thread::sleep_for(std::chrono::seconds(1));
                                      comm->barrier(stream, "blocks.0");
                                      stream.synchronize();
                                      if (rank % 2 == 0)
                                        std::this_thread::sleep_for(std::chrono::milliseconds(5));
                                    }
                                  } catch (const std::exception& error) {
                                    messages[size_t(rank)] = error.what();
                                    throw;
                                  }
                                }),
               Error);
  for (int r : {0, 1, 2}) {
    EXPECT_TRUE(has(messages[size_t(r)], "rank 3 has not arrived")) << messages[size_t(r)];
    EXPECT_TRUE(
        has(messages[size_t(r)], r == 1 ? "barrier of unit blocks.0 (operation 3 on 'reduce (ranks 1 and 3)')"
                                        : "on 'reduce (ranks 0 and 2)'"))
        << messages[size_t(r)];
  }
}

TEST_P(ThreadFailure, StallNamesTheRankItsLastOperationAndOurs) {
  const int n = GetParam();
  const Failure outcome = run_failing(n, "stall", {.deadline = std::chrono::milliseconds(300)});
  EXPECT_EQ(outcome.kind, ErrorKind::peer);
  for (const std::string& message : outcome.messages) {
    EXPECT_TRUE(
        has(message, fmt::format("nothing moved for 300 ms: rank {} has not arrived (last completed there: "
                                 "operation 2, reduce_scatter of unit blocks.1)",
                                 n - 1)))
        << message;
    EXPECT_TRUE(has(message, "this rank was in reduce_scatter of unit blocks.2 (operation 3 on 'reduce')"))
        << message;
  }
}

TEST_P(ThreadFailure, MismatchSaysWhoIssuedWhatOnAllRanks) {
  const int n = GetParam();
  for (const auto& [way, text] :
       {std::pair{"mismatch-op", "all_gather of unit blocks.2 (1 part, 1000 fp32 elements)"},
        std::pair{"mismatch-count", "reduce_scatter of unit blocks.2 (1 part, 999 fp32"},
        std::pair{"mismatch-unit", "reduce_scatter of unit head (1 part, 1000 fp32"}}) {
    const Failure outcome = run_failing(n, way, {.deadline = std::chrono::seconds(30)});
    EXPECT_EQ(outcome.kind, ErrorKind::peer);
    for (const std::string& message : outcome.messages) {
      EXPECT_TRUE(has(message, "the ranks disagree on 'reduce'")) << message;
      EXPECT_TRUE(has(message, fmt::format("rank {} issued {}", n - 1, text))) << message;
      EXPECT_TRUE(
          has(message, "issued reduce_scatter of unit blocks.2 (1 part, 1000 fp32 elements) as operation 3"))
          << message;
    }
  }
}

TEST_P(ThreadFailure, MismatchOfAnExchangeNamesBothRanksAndCounts) {
  const int n = GetParam();
  const Failure outcome = run_failing(n, "mismatch-exchange", {.deadline = std::chrono::seconds(30)});
  EXPECT_EQ(outcome.kind, ErrorKind::peer);
  for (const std::string& message : outcome.messages) {
    EXPECT_TRUE(has(message, fmt::format("the ranks disagree on all_to_all of unit experts of 'reduce': rank "
                                         "{} sends 8 fp32 elements to rank 0, which expects 7 (part 0)",
                                         n - 1)))
        << message;
  }
}

// The failing rank frees its buffers while others read them: under ASan this must stay quiet.
TEST_P(ThreadFailure, NobodyReadsTheMemoryOfARankThatLeft) {
  for (int round = 0; round < 2; ++round) {
    const Failure outcome = run_failing(GetParam(), "reading", {.deadline = std::chrono::seconds(30)});
    EXPECT_EQ(outcome.rethrown, "row 7 of train.jsonl is broken");
  }
}

TEST(ThreadFailure, ErrorsThatAreNotOursComeThrough) {
  EXPECT_THROW(run_thread_ranks(2, {},
                                [](World& world) {
                                  if (world.rank() == 1) throw std::bad_alloc();
                                  world.exchange("x");
                                }),
               std::bad_alloc);
}

TEST(ThreadFailure, FailWithoutThrowingEndsTheOthers) {
  std::mutex mutex;
  std::string message;
  EXPECT_THROW(run_thread_ranks(2, {},
                                [&](World& world) {
                                  if (world.rank() == 1) return world.fail("asked to stop");
                                  try {
                                    world.exchange("x");
                                  } catch (const Error& error) {
                                    const std::scoped_lock lock(mutex);
                                    message = error.what();
                                    throw;
                                  }
                                }),
               Error);
  EXPECT_TRUE(has(message, "rank 1 failed: asked to stop")) << message;
}

TEST(ThreadFailure, StreamsCarryTheErrorToWhoWaits) {
  std::atomic<int> caught = 0;
  EXPECT_THROW(run_thread_ranks(2, {.deadline = std::chrono::milliseconds(200)},
                                [&](World& world) {
                                  const auto comm = world.communicator("gather");
                                  Stream a({.name = "a"}), b({.name = "b"});
                                  if (world.rank() == 0) comm->barrier(a, "unit");
                                  Event event;
                                  event.record(a);
                                  b.ref().wait(event);
                                  try {
                                    b.synchronize();
                                  } catch (const Error& error) {
                                    caught += error.kind() == ErrorKind::peer;
                                    throw;
                                  }
                                }),
               Error);
  EXPECT_EQ(caught, 1);
}

TEST(ThreadFailure, MessagesThatDoNotMatchAreAnError) {
  std::atomic<int> told = 0;
  EXPECT_THROW(run_thread_ranks(2, {.deadline = std::chrono::seconds(10)},
                                [&](World& world) {
                                  const auto comm = world.communicator("pipe");
                                  Stream stream({.name = "s"});
                                  std::vector<std::byte> data(400);
                                  try {
                                    if (world.rank() == 0) {
                                      comm->send(stream, data.data(), 100, DType::f32, 1, "act");
                                      comm->barrier(stream, "act");
                                    } else {
                                      comm->recv(stream, data.data(), 99, DType::f32, 0, "act");
                                    }
                                    stream.synchronize();
                                  } catch (const Error& error) {
                                    told += has(error.what(), "ranks 0 and 1 disagree on 'pipe'");
                                    throw;
                                  }
                                }),
               Error);
  EXPECT_EQ(told, 2);
}

// How a world of two ends whose rank 0 does not come back from `hang`, which is handed what it waits for. It
// is let go afterwards: nothing of it stays in this process.
Ending end_of_stuck_world(const WorldOptions& options, const std::function<void(std::latch&)>& hang) {
  const auto let_go = std::make_shared<std::latch>(1), gone = std::make_shared<std::latch>(1);
  Ending ending{"it ended well"};
  try {
    run_thread_ranks(2, options, [=](World& world) {
      if (world.rank() > 0) return void(world.exchange("x", "everyone"));
      hang(*let_go);
      gone->count_down();
    });
  } catch (...) {
    ending = ending_of(std::current_exception());
  }
  let_go->count_down();
  gone->wait();
  return ending;
}

TEST(StuckRank, InADiskIsAnErrorWithItsFile) {
  const std::filesystem::path file = "/mnt/dead/file";
  const Ending ending =
      end_of_stuck_world({.deadline = std::chrono::hours(1), .disk_deadline = std::chrono::milliseconds(100)},
                         [&](std::latch& let_go) {
                           const DiskOperation waiting("writing", file);
                           let_go.wait();
                         });
  EXPECT_EQ(ending.kind, ErrorKind::io);
  EXPECT_TRUE(has(ending.text, "[disk] writing /mnt/dead/file: no response for 0.")) << ending.text;
}

TEST(StuckRank, IsNoSuccessWhoeverNoticed) {
  const Ending ending = end_of_stuck_world({.deadline = std::chrono::milliseconds(100)},
                                           [](std::latch& let_go) { let_go.wait(); });
  EXPECT_EQ(ending.kind, ErrorKind::peer);
  EXPECT_TRUE(has(ending.text, "nothing moved for 100 ms: nothing received from rank 0")) << ending.text;
}

// With room for a few threads.
TEST(ThreadFailureDeathTest, RanksThatCannotBeStartedEndTheOthers) {
  if (test::kSanitized) GTEST_SKIP() << "the sanitizer needs more room for itself";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto few_threads = [] {
    constexpr rlim_t kRoom = 1 << 30;
    const rlimit limit{kRoom, kRoom};
    setrlimit(RLIMIT_AS, &limit);
    try {
      run_thread_ranks(1000, {.deadline = std::chrono::seconds(300)},
                       [](World& world) { world.exchange("", "everyone"); });
    } catch (const Error& error) {
      fmt::print(stderr, "{}", error.what());
      std::quick_exit(exit_code(error.kind()));
    }
    std::quick_exit(0);
  };
  EXPECT_EXIT(few_threads(), ::testing::ExitedWithCode(exit_code(ErrorKind::memory)),
              "cannot start a thread: .*; allow more");
}

}  // namespace
}  // namespace zeno::comm
