// Meshes of processes that are told to be on different hosts: the bits of threads in one row, and what really
// went from host to host.
#include <gtest/gtest.h>

#include "tests/support/command.h"
#include "tests/support/mpirun.h"
#include "tests/zero/mesh_runs.h"

namespace zeno::zero {
namespace {

struct Hosts {
  int count, ranks_each;
};
class MeshOfProcesses : public testing::TestWithParam<Hosts> {};
INSTANTIATE_TEST_SUITE_P(Hosts, MeshOfProcesses,
                         testing::Values(Hosts{2, 2}, Hosts{4, 1}, Hosts{2, 4}, Hosts{4, 2}),
                         [](const auto& test) {
                           return fmt::format("{}x{}", test.param.count, test.param.ranks_each);
                         });

// What rank 0 prints of each placement.
std::string output_of(const Hosts& hosts, const char* way) {
  const test::CommandResult out = test::run_command(
      fmt::format("timeout 200 {} --mca btl self,vader,tcp --mca btl_vader_single_copy_mechanism none "
                  "{}/tests/test_zero_mpi {} {}",
                  test::mpirun(hosts.count * hosts.ranks_each), ZENO_BINARY_DIR, hosts.ranks_each, way));
  EXPECT_EQ(out.exit_code, 0) << out.output;
  return out.output;
}

void expect_run(const std::string& output, const Placements& placements, uint64_t hash) {
  const std::string start = fmt::format("{}: {:016x} sent ", placements.name, hash);
  const size_t line = output.find(start);
  ASSERT_NE(line, std::string::npos) << placements.name << " has other bits:\n" << output;
  long long sent = 0, formula = 0;
  ASSERT_EQ(std::sscanf(output.c_str() + line + start.size(), "%lld formula %lld", &sent, &formula), 2);
  EXPECT_EQ(sent, formula) << placements.name;
}

TEST_P(MeshOfProcesses, HasTheBitsOfThreadsAndSendsWhatTheProgramSays) {
  if (!comm::mpi_available()) GTEST_SKIP() << "built without MPI";
  test::RunSpec flat;
  flat.world = GetParam().count * GetParam().ranks_each;
  flat.steps = 2;
  const uint64_t hash = run_threads(flat).hash;
  const std::string output = output_of(GetParam(), "");
  for (const Placements& placements : all_placements()) expect_run(output, placements, hash);
}

// MPI promises no order of additions, but every placement trains alike, and counts the bytes of the tree.
TEST_P(MeshOfProcesses, NativeSumsTrainLikeTheTree) {
  if (!comm::mpi_available()) GTEST_SKIP() << "built without MPI";
  test::RunSpec flat;
  flat.world = GetParam().count * GetParam().ranks_each;
  flat.steps = 2;
  const test::RunResult tree = run_threads(flat);
  const std::string output = output_of(GetParam(), "native");
  for (const Placements& placements : all_placements()) {
    const size_t line = output.find(fmt::format("{}: ", placements.name));
    ASSERT_NE(line, std::string::npos) << placements.name << " is missing:\n" << output;
    long long sent = 0, formula = 0;
    double loss = 0, norm = 0;
    int sums = 0;
    ASSERT_EQ(
        std::sscanf(output.c_str() + output.find("sent ", line),
                    "sent %lld formula %lld loss %lf norm %lf sums %d", &sent, &formula, &loss, &norm, &sums),
        5);
    EXPECT_GT(sums, 0) << placements.name;
    EXPECT_EQ(sent, formula) << placements.name;
    EXPECT_NEAR(loss, tree.losses.back(), 1e-5 * tree.losses.back()) << placements.name;
    EXPECT_NEAR(norm, tree.norms.back(), 1e-4 * tree.norms.back()) << placements.name;
  }
}

// Every host a stage: what the next needs goes over MPI.
TEST_P(MeshOfProcesses, StagesOnHostsHaveTheBitsOfOneStage) {
  if (!comm::mpi_available()) GTEST_SKIP() << "built without MPI";
  test::RunSpec one;
  one.world = GetParam().ranks_each;
  one.steps = 2;
  one.policy.order = Order::horizontal;
  const std::string output = output_of(GetParam(), "stages");
  for (const Placements& placements : all_placements()) {
    placements.apply(one.policy);
    const std::string expected = fmt::format("{}: {:016x} sent ", placements.name, run_threads(one).hash);
    EXPECT_NE(output.find(expected), std::string::npos) << expected << output;
  }
}

// The ranks of a host share sequences.
TEST_P(MeshOfProcesses, SharedSequencesHaveTheBitsOfThreads) {
  if (!comm::mpi_available()) GTEST_SKIP() << "built without MPI";
  test::RunSpec threads;
  threads.world = GetParam().count * GetParam().ranks_each;
  threads.context = GetParam().ranks_each;
  threads.steps = 2;
  const uint64_t hash = run_threads(threads).hash;
  const std::string output = output_of(GetParam(), "context");
  for (const Placements& placements : all_placements()) {
    const std::string expected = fmt::format("{}: {:016x} sent ", placements.name, hash);
    EXPECT_NE(output.find(expected), std::string::npos) << expected << output;
  }
}

// Each placement has bits of its own.
TEST_P(MeshOfProcesses, BlocksOfFewBitsHaveTheBitsOfThreadsToo) {
  if (!comm::mpi_available()) GTEST_SKIP() << "built without MPI";
  const std::string output = output_of(GetParam(), "coded");
  for (const Placements& placements : all_placements()) {
    test::RunSpec spec;
    spec.world = GetParam().count * GetParam().ranks_each;
    spec.inner = GetParam().ranks_each;
    spec.steps = 2;
    spec.policy.int8_weights = spec.policy.coded_gradients = true;
    placements.apply(spec.policy);
    expect_run(output, placements, run_threads(spec).hash);
  }
}

}  // namespace
}  // namespace zeno::zero
