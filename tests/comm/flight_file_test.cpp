// The flight recorder file: what it says, and that every way a world of threads fails leaves one.
#include "zeno/comm/flight/flight_file.h"
#include "tests/support/text.h"

#include <gtest/gtest.h>

#include <future>
#include <mutex>

#include "failing_world.h"
#include "tests/support/temp_dir.h"
#include "zeno/base/error.h"
#include "zeno/comm/flight/flight_part.h"

namespace zeno::comm {
namespace {

using namespace std::chrono_literals;
using test::TempDir;

using test::has;

FlightPart part_of(int rank, uint64_t started, uint64_t done) {
  return {.job = "77-1",
          .rank = rank,
          .process = "process 5 on node",
          .time = "12:00",
          .error = "it hurts",
          .failure = "[comm] rank 1 failed: its process (9) has ended",
          .positions = {{"reduce", "all_reduce of unit head", started, done, 250ms}},
          .seen = {{1, "last completed on 'reduce': operation 3, all_reduce of unit blocks.0"}},
          .operations = "a table\nof two lines\n"};
}

TEST(FlightFile, PartsComeBackAsTheyWere) {
  const FlightPart part = part_of(2, 4, 3);
  const std::optional<FlightPart> again = parse_flight_part(to_text(part));
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(to_text(*again), to_text(part));
  EXPECT_EQ(again->operations, part.operations);
  for (const std::string text : {"", "job", "rank 3\noperations\n", "job 1\nat x\n"}) {
    EXPECT_FALSE(parse_flight_part(text).has_value()) << text;
  }
}

TEST(FlightFile, SaysWhoWaitedWhereAndWhoHadNotCome) {
  const std::string text =
      merge_flight_parts({{0, part_of(0, 4, 3)}, {2, part_of(2, 4, 3)}, {3, part_of(3, 3, 3)}}, 4);
  const size_t top = text.find("Times below");
  EXPECT_TRUE(has(text.substr(0, top), "rank 1 failed: its process (9) has ended")) << text;
  EXPECT_TRUE(has(text.substr(0, top),
                  "ranks 0 and 2 were in all_reduce of unit head (operation 4 on 'reduce'); ranks 1 and 3 "
                  "had not arrived"))
      << text;
  EXPECT_TRUE(has(text,
                  "Rank 1: no record\n  took part in operation 3 on 'reduce', which others completed\n  "
                  "rank 0 saw: last completed on 'reduce': operation 3"))
      << text;
  EXPECT_TRUE(has(text, "Rank 3 (process 5 on node)\n  12:00  it hurts\n  in no operation\na table")) << text;
}

struct Outcome {
  std::string error, file;
  std::vector<std::string> names;  // in the folder
};

Outcome run_in(const TempDir& dir, int ranks, std::chrono::milliseconds deadline,
               const std::function<void(World&)>& body) {
  Outcome outcome;
  try {
    run_thread_ranks(ranks, {.deadline = deadline, .flight_folder = dir.path()}, body);
  } catch (const Error& error) {
    outcome.error = error.what();
  }
  outcome.names = list_folder(dir.path());
  if (file_exists(dir.path() / "flight-recorder.txt"))
    outcome.file = read_file(dir.path() / "flight-recorder.txt");
  return outcome;
}

TEST(FlightFile, AThrowingThreadRankLeavesOneFileOfAllRanks) {
  const TempDir dir;
  dir.write("flight-recorder.rank-0000.1-1.txt", "job of long ago\n");
  dir.write("flight-recorder.txt", "Flight recorder of job 1-1: old\n");
  const Outcome outcome = run_in(dir, 3, 30s, [](World& world) {
    contract::Site site(world);
    contract::fail_in(site, "throw");
  });
  EXPECT_EQ(outcome.error, "row 7 of train.jsonl is broken");
  EXPECT_EQ(outcome.names, std::vector<std::string>{"flight-recorder.txt"});
  EXPECT_TRUE(has(outcome.file, "rank 2 failed: row 7 of train.jsonl is broken")) << outcome.file;
  EXPECT_TRUE(has(outcome.file,
                  "ranks 0 and 1 were in reduce_scatter of unit blocks.2 (operation 3 on 'reduce'); "
                  "rank 2 had not arrived"))
      << outcome.file;
  for (const char* rank : {"\nRank 0 (", "\nRank 1 (", "\nRank 2 ("}) EXPECT_TRUE(has(outcome.file, rank));
  EXPECT_FALSE(has(outcome.file, "job 1-1")) << "of an earlier job";
}

TEST(FlightFile, AMismatchIsAtTheTop) {
  const TempDir dir;
  const Outcome outcome = run_in(dir, 3, 30s, [](World& world) {
    contract::Site site(world);
    contract::fail_in(site, "mismatch-unit");
  });
  EXPECT_TRUE(has(outcome.file.substr(0, outcome.file.find("Times below")),
                  "rank 2 issued reduce_scatter of unit head"))
      << outcome.file;
}

TEST(FlightFile, AUsageErrorNeedsNone) {
  const TempDir dir;
  const Outcome outcome = run_in(dir, 2, 30s, [](World&) { fail(ErrorKind::usage, "no such flag"); });
  EXPECT_EQ(outcome.error, "no such flag");
  EXPECT_TRUE(outcome.names.empty());
}

// A thread cannot be ended from outside: the others say who it is, and the run is over without it.
TEST(FlightFile, AThreadRankThatIsStuckIsNamedAndLeftBehind) {
  const TempDir dir;
  const auto release = std::make_shared<std::promise<void>>();
  const auto gone = std::make_shared<std::promise<void>>();
  const Outcome outcome = run_in(dir, 2, 300ms, [release, gone](World& world) {
    world.exchange("a", "seeds");
    if (world.rank() == 1) {
      release->get_future().wait();
      gone->set_value();
      return;
    }
    world.exchange("b", "sizes");
  });
  EXPECT_EQ(
      outcome.error,
      "[comm] nothing moved for 300 ms: nothing received from rank 1; this rank was in exchange of sizes "
      "(operation 2 on "
      "'world')");
  EXPECT_TRUE(
      has(outcome.file, "rank 0 was in exchange of sizes (operation 2 on 'world'); rank 1 had not arrived"))
      << outcome.file;
  EXPECT_TRUE(has(outcome.file, "\nRank 1 (") && has(outcome.file, "it has not come back")) << outcome.file;
  release->set_value();
  gone->get_future().wait();
}

}  // namespace
}  // namespace zeno::comm
