// One rank of the MPI tests, started by mpirun (mpi_world_test.cpp).
//   test_comm_mpi contract RANKS_PER_HOST       runs the contract suite
//   test_comm_mpi WAY RANKS_PER_HOST [DEADLINE [START]] fails in one of the ways of failing_world.h; exits as
//   the command line
//                                               would, and says so
#include <cstdlib>
#include <string>

#include "communicator_contract.h"
#include "failing_world.h"
#include "rank_process.h"

int main(int argc, char** argv) {
  using namespace zeno;
  using namespace zeno::comm;
  if (argc < 3) return 2;
  const std::string way = argv[1];
  WorldOptions options;
  options.ranks_per_host = std::atoi(argv[2]);
  options.deadline = std::chrono::milliseconds(argc > 3 ? std::atoi(argv[3]) : 60'000);
  if (argc > 4) options.start_deadline = std::chrono::milliseconds(std::atoi(argv[4]));
  options.staging_bytes = 64 << 10;  // small, so that the tests go through many chunks
  const char* at = "the start";
  return run_rank_process(
      options,
      [&](World& world) {
        contract::Site site(world);
        if (way != "contract") {
          at = way.c_str();
          return contract::fail_in(site, way);
        }
        for (const contract::Case& test : contract::cases()) {
          at = test.name;
          test.run(site);
        }
      },
      at);
}
