#include <gtest/gtest.h>

#include "communicator_contract.h"
#include "native_contract.h"

namespace zeno::comm {
namespace {

WorldOptions patient() { return {.deadline = std::chrono::seconds(60)}; }

class ThreadContract : public ::testing::TestWithParam<std::tuple<int, contract::Case>> {};

TEST_P(ThreadContract, Holds) {
  const auto& [ranks, test] = GetParam();
  run_thread_ranks(ranks, patient(), [&](World& world) {
    EXPECT_EQ(world.size(), ranks);
    contract::Site site(world);
    test.run(site);
  });
}

std::string name_of_case(const ::testing::TestParamInfo<std::tuple<int, contract::Case>>& test) {
  return std::string(std::get<1>(test.param).name) + "_" + std::to_string(std::get<0>(test.param));
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadContract,
                         ::testing::Combine(::testing::Range(1, 9),
                                            ::testing::ValuesIn(contract::cases().begin(),
                                                                contract::cases().end())),
                         name_of_case);

// They read each other's memory, so the tree is native to them: its bits stay.
TEST(ThreadWorld, NativeSumsAreThoseOfTheTree) {
  run_thread_ranks(3, patient(), [](World& world) {
    contract::Site site(world, {}, Reduction::native);
    for (const contract::Case& test : contract::cases()) {
      if (std::string_view(test.name).find("reduce") != std::string_view::npos) test.run(site);
    }
    for (const contract::Case& test : contract::native_cases()) test.run(site);
  });
}

class SelfContract : public ::testing::TestWithParam<contract::Case> {};

TEST_P(SelfContract, Holds) {
  const auto world = make_self_world();
  contract::Site site(*world);
  GetParam().run(site);
  world->finish();
}

INSTANTIATE_TEST_SUITE_P(Self, SelfContract,
                         ::testing::ValuesIn(contract::cases().begin(), contract::cases().end()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace zeno::comm
