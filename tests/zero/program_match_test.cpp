#include "zeno/zero/program/program_match.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/zero/mesh_runs.h"

namespace zeno::zero {
namespace {

using comm::Axes;
using comm::Axis;
using List = std::vector<Communication>;

constexpr Axes kMatchInner{Axis::inner}, kOuter{Axis::outer};

// The programs of a mesh 2 × 2, each of which a test may spoil.
class Match : public testing::Test {
 protected:
  Match() {
    test::RunSpec spec;
    spec.world = 4;
    spec.inner = 2;
    all_placements()[3].apply(spec.policy);
    const CompiledStep step = compile_step(test::model_of(spec), test::options_of(spec));
    mesh_ = step.mesh;
    ranks_.assign(4, communications_of(step.program, step.units));
  }
  void match_all() const {
    std::vector<const List*> lists;
    for (const List& list : ranks_) lists.push_back(&list);
    match(lists, mesh_);
  }
  void expect_mismatch(const std::vector<std::string>& parts) const {
    test::expect_error(ErrorKind::peer, parts, [&] { match_all(); });
  }

  comm::Mesh mesh_;
  std::vector<List> ranks_;
};

TEST_F(Match, ProgramsOfEveryPlacementFit) {
  for (const int inner : {1, 2, 4, 8}) {
    for (const Placements& placements : all_placements()) {
      test::RunSpec spec;
      spec.world = 8;
      spec.inner = inner;
      placements.apply(spec.policy);
      const CompiledStep step = compile_step(test::model_of(spec), test::options_of(spec));
      const List list = communications_of(step.program, step.units);
      EXPECT_FALSE(list.empty());
      EXPECT_NO_THROW(match(std::vector<const List*>(8, &list), step.mesh)) << placements.name;
    }
  }
}

TEST_F(Match, AMissingCollectiveIsFound) {
  ranks_[2].erase(ranks_[2].begin() + 3);
  expect_mismatch({"do not fit together", "at collective", "rank 2"});
}

TEST_F(Match, AnExtraCollectiveAtTheEndIsFound) {
  ranks_[1].push_back(ranks_[1].back());
  expect_mismatch({"rank 1 is in", "has come to its end"});
}

TEST_F(Match, OtherChunksAreFound) {
  ranks_[3][2].what += "+";
  expect_mismatch({"do not fit together", "rank 3"});
}

TEST_F(Match, AnotherOrderWithinACommunicatorIsFound) {
  std::swap(ranks_[0][0], ranks_[0][2]);
  expect_mismatch({"ranks 0 and", "do not fit together"});
}

// Each pair of ranks agrees on what it does together, and yet all four wait in a circle.
TEST_F(Match, ACircleOfWaitsIsFound) {
  const Communication row{{Lane::gather, kMatchInner}, "gather row"},
      column{{Lane::gather, kOuter}, "gather column"};
  ranks_ = {{row, column}, {column, row}, {column, row}, {row, column}};
  expect_mismatch({"gather row", "gather column"});
  ranks_ = {{row, column}, {row, column}, {column, row}, {column, row}};
  EXPECT_NO_THROW(match_all());  // rows 0 and 1 first, then both columns
}

// The programs of two stages, each for two ranks.
class MatchStages : public Match {
 protected:
  MatchStages() {
    test::RunSpec spec;
    spec.world = 4;
    spec.pipe = 2;
    spec.policy.micro_batches = 3;
    spec.policy.order = Order::horizontal;
    mesh_ = mesh_of(spec);
    for (int rank = 0; rank < 4; ++rank) {
      const CompiledStep step = compile_step(test::model_of(spec), test::options_of(spec), rank);
      ranks_[size_t(rank)] = communications_of(step.program, step.units);
    }
  }
  List::iterator message(int rank, bool sends, int number = 0) {
    List& list = ranks_[size_t(rank)];
    const auto is_it = [&](const Communication& op) { return op.hop && op.sends == sends; };
    auto found = std::ranges::find_if(list, is_it);
    for (; number > 0; --number) found = std::find_if(found + 1, list.end(), is_it);
    return found;
  }
};

TEST_F(MatchStages, StagesFit) { EXPECT_NO_THROW(match_all()); }

TEST_F(MatchStages, AReceiveWithoutASendIsFound) {
  ranks_[0].erase(message(0, true, 2));
  expect_mismatch({"do not fit together", "rank 2", "message of blocks"});
}

TEST_F(MatchStages, ASendWithoutAReceiveIsFound) {
  ranks_[3].erase(message(3, false, 2));
  expect_mismatch({"do not fit together", "message of blocks"});
}

TEST_F(MatchStages, AnotherMicroBatchIsFound) {
  std::swap(message(1, true, 0)->what, message(1, true, 1)->what);
  expect_mismatch({"ranks 1 and 3", "mb1", "mb0"});
}

TEST_F(MatchStages, TwoSendsDoNotMeet) {
  message(2, false)->sends = true;
  expect_mismatch({"ranks", "do not fit together"});
}

// The later stage sends its gradient before it receives the next activation: both wait to be received.
TEST_F(MatchStages, StagesThatBothSendFirstAreFound) {
  for (const int rank : {2, 3}) {
    const auto send = message(rank, true);
    ASSERT_TRUE((send - 1)->hop && !(send - 1)->sends);
    std::iter_swap(send - 1, send);
  }
  expect_mismatch({"do not fit together", "message of blocks"});
}

// Groups that share no rank need no common order.
TEST_F(Match, IndependentGroupsMayDiffer) {
  const Communication a{{Lane::gather, kMatchInner}, "gather a"}, b{{Lane::reduce, kMatchInner}, "reduce b"};
  ranks_ = {{a, b}, {a, b}, {b, a}, {b, a}};
  EXPECT_NO_THROW(match_all());
}

// Between ranks of a world: each sends its program only if it is the first of its kind.
TEST_F(Match, RanksCompareTheirPrograms) {
  const auto run = [&] {
    comm::run_thread_ranks(4, {.deadline = std::chrono::seconds(10)}, [&](comm::World& world) {
      match_programs(world, mesh_, ranks_[size_t(world.rank())]);
    });
  };
  EXPECT_NO_THROW(run());
  ranks_[2].pop_back();
  test::expect_error(ErrorKind::peer, {"rank 2", "has come to its end"}, run);
}

}  // namespace
}  // namespace zeno::zero
