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

TEST_P(MeshOfProcesses, HasTheBitsOfThreadsAndSendsWhatTheProgramSays) {
  if (!comm::mpi_available()) GTEST_SKIP() << "built without MPI";
  const auto [hosts, each] = GetParam();
  test::RunSpec flat;
  flat.world = hosts * each;
  flat.steps = 2;
  const uint64_t hash = run_threads(flat).hash;
  const test::CommandResult out = test::run_command(
      fmt::format("timeout 200 {} --mca btl self,vader,tcp --mca btl_vader_single_copy_mechanism none "
                  "{}/tests/test_zero_mpi {}",
                  test::mpirun(flat.world), ZENO_BINARY_DIR, each));
  ASSERT_EQ(out.exit_code, 0) << out.output;
  for (const Placements& placements : all_placements()) {
    const std::string start = fmt::format("{}: {:016x} sent ", placements.name, hash);
    const size_t line = out.output.find(start);
    ASSERT_NE(line, std::string::npos) << placements.name << " has other bits:\n" << out.output;
    long long sent = 0, formula = 0;
    ASSERT_EQ(std::sscanf(out.output.c_str() + line + start.size(), "%lld formula %lld", &sent, &formula), 2);
    EXPECT_EQ(sent, formula) << placements.name;
  }
}

}  // namespace
}  // namespace zeno::zero
