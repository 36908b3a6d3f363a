// One rank of the MPI tests, started by mpirun (mpi_world_test.cpp).
//   test_comm_mpi contract|native RANKS_PER_HOST  runs the contract suite, or that of native sums
//   test_comm_mpi WAY RANKS_PER_HOST [DEADLINE [START]]  fails in one of the ways of failing_world.h; exits
//   as
//                                               the command line would, and says so
//   test_comm_mpi native-WAY …                  the same with native sums
#include <cstdlib>
#include <string>

#include "communicator_contract.h"
#include "failing_world.h"
#include "native_contract.h"
#include "rank_process.h"

int main(int argc, char** argv) {
  using namespace zeno;
  using namespace zeno::comm;
  if (argc < 3) return 2;
  std::string way = argv[1];
  const bool native = way.starts_with("native");
  if (way.starts_with("native-")) way = way.substr(std::string("native-").size());
  WorldOptions options;
  options.ranks_per_host = std::atoi(argv[2]);
  options.deadline = std::chrono::milliseconds(argc > 3 ? std::atoi(argv[3]) : 60'000);
  if (argc > 4) options.start_deadline = std::chrono::milliseconds(std::atoi(argv[4]));
  options.staging_bytes = 64 << 10;  // small, so that the tests go through many chunks
  const char* at = "the start";
  return run_rank_process(
      options,
      [&](World& world) {
        contract::Site site(world, {}, native ? Reduction::native : Reduction::tree);
        if (way != "contract" && way != "native") {
          at = way.c_str();
          return contract::fail_in(site, way);
        }
        for (const contract::Case& test : native ? contract::native_cases() : contract::cases()) {
          at = test.name;
          test.run(site);
        }
      },
      at);
}
