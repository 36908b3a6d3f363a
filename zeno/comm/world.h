// The ranks of a job as one of them sees it: who am I, how do I talk, and what happens when somebody fails.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "zeno/comm/communicator.h"
#include "zeno/device/buffer.h"

namespace zeno::comm {

struct WorldOptions {
  std::chrono::milliseconds deadline{std::chrono::minutes(10)};  // longest a rank waits in one collective
  int flight_records = 256;                                      // last operations kept per rank
};

class World {
 public:
  virtual ~World() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int local_rank() const = 0;  // among the ranks of this host
  virtual int local_size() const = 0;

  // A new communicator over all ranks. Collective: all ranks create theirs in the same order.
  virtual std::unique_ptr<Communicator> communicator(std::string_view name) = 0;

  // Memory for buffers that take part in collectives, so that ranks of one host read each other's without a copy.
  // Collective: all ranks allocate in the same order (sizes may differ). Other memory works too, through staging.
  virtual Allocator allocator() = 0;

  // Tells every rank that this one has failed; their pending and later collectives throw Error(peer) with `reason`.
  // Never throws, never blocks.
  virtual void fail(std::string_view reason) noexcept = 0;

  // Blocking exchange of small values, for start-up: returns the bytes of all ranks, in order.
  virtual std::vector<std::string> exchange(std::string_view bytes) = 0;
};

// Throws Error(peer) on every rank, naming the first rank that differs, unless all ranks give the same `value`.
// `what` says what is compared, `describe(rank-local)` is printed for both sides.
void check_same(World& world, std::string_view what, std::string_view value);

// World of one.
std::unique_ptr<World> make_self_world();

// Runs `body` on `ranks` threads of this process, each with its World. Returns when all have returned; when any
// throws, the others are failed, and the first original error is rethrown (an Error(peer) that only reports it is
// not original).
void run_thread_ranks(int ranks, const WorldOptions& options, const std::function<void(World&)>& body);

// Processes started by mpirun, srun or a torchrun-like launcher: is_mpi_launch() looks at the launcher's variables
// only. The MPI world initialises MPI on first use.
struct LaunchInfo {
  int rank = 0, size = 1, local_rank = 0, local_size = 1;
  std::string launcher;  // "mpirun", "slurm", "torchrun", "" = started by hand
};
LaunchInfo launch_info();
bool mpi_available();
std::unique_ptr<World> make_mpi_world(const WorldOptions& options);

}  // namespace zeno::comm
