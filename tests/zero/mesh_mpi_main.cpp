// One rank of a mesh of processes, started by mpirun (mesh_mpi_test.cpp):
//   test_zero_mpi RANKS_PER_HOST [coded|native|stages|context]
// Trains with every placement as if each RANKS_PER_HOST processes were a host; coded: weights and gradients
// travel in blocks of few bits; native: MPI sums between hosts; stages: each host is a stage of a pipeline;
// context: its ranks share sequences. Rank 0 prints, for each: name, hash of the
// weights, bytes that its host sent to others in the last step, what the program says of them, the loss and
// the gradient norm of the last step, and how many sums MPI was asked for.
#include <mpi.h>

#include <atomic>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "tests/comm/rank_process.h"
#include "tests/zero/mesh_runs.h"

namespace {

std::atomic<int> mpi_sums{0};

}  // namespace

// In place of those of MPI, whose own names begin with a P.
extern "C" int MPI_Ireduce_scatter_block(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op,
                                         MPI_Comm comm, MPI_Request* request) {
  ++mpi_sums;
  return PMPI_Ireduce_scatter_block(from, to, count, type, op, comm, request);
}
extern "C" int MPI_Iallreduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op,
                              MPI_Comm comm, MPI_Request* request) {
  ++mpi_sums;
  return PMPI_Iallreduce(from, to, count, type, op, comm, request);
}

namespace zeno::zero {
namespace {

int64_t sum_of_host(comm::World& world, int64_t mine, int ranks_per_host) {
  const std::vector<std::string> all = world.exchange(std::to_string(mine));
  int64_t sum = 0;
  for (int r = 0; r < ranks_per_host; ++r) sum += std::stoll(all[size_t(r)]);
  return sum;
}

void train(comm::World& world, const Placements& placements, int ranks_per_host, std::string_view way) {
  test::RunSpec spec;
  spec.world = world.size();
  spec.steps = 2;
  spec.inner = ranks_per_host;
  if (way == "stages") spec.pipe = spec.world / ranks_per_host;
  if (way == "stages") spec.policy.order = Order::horizontal;
  if (way == "context") spec.context = std::exchange(spec.inner, 0);
  spec.policy.int8_weights = spec.policy.coded_gradients = way == "coded";
  if (way == "native") spec.policy.reduction = comm::Reduction::native;
  placements.apply(spec.policy);
  const test::RunResult result = test::run_rank(spec, world);
  const int64_t sent = sum_of_host(world, result.traffic.between_hosts, ranks_per_host);
  const CompiledStep step = compile_step(test::model_of(spec), test::options_of(spec));
  // Every rank tells those of other hosts its part of the loss and the norm.
  const int64_t norms = int64_t(sizeof(StepSums)) * ranks_per_host * (world.size() - ranks_per_host);
  if (world.rank() == 0)
    fmt::print("{}: {:016x} sent {} formula {} loss {} norm {} sums {}\n", placements.name, result.hash, sent,
               bytes_across(step) + norms, result.losses.back(), result.norms.back(), mpi_sums.exchange(0));
}

}  // namespace
}  // namespace zeno::zero

int main(int argc, char** argv) {
  using namespace zeno;
  if (argc < 2) return 2;
  const int ranks_per_host = std::atoi(argv[1]);
  const comm::WorldOptions options{.deadline = std::chrono::seconds(60), .ranks_per_host = ranks_per_host};
  const char* at = "the start";
  return comm::run_rank_process(
      options,
      [&](comm::World& world) {
        for (const zero::Placements& placements : zero::all_placements()) {
          at = placements.name;
          zero::train(world, placements, ranks_per_host, argc > 2 ? argv[2] : "");
        }
      },
      at);
}
