// The ranks of a job as one of them sees them: which rank this is, how it communicates, and what happens when
// a rank fails.
//
// Ranks are threads of this process, processes of this host, or processes of several hosts; the calls are the
// same. Calls that are collective must be made by all ranks in the same order. A World must outlive its
// communicators and the buffers of its allocator; queued operations must be done (or their streams destroyed)
// before buffers are freed. Thread rule: fail() from any thread; the other calls from one thread of the rank.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/base/file.h"
#include "zeno/comm/communicator.h"
#include "zeno/device/buffer.h"

namespace zeno::comm {

struct WorldOptions {
  std::chrono::milliseconds deadline{std::chrono::minutes(10)};  // for one collective
  // Processes get at least this long to start, however short the deadline of a collective is.
  std::chrono::milliseconds start_deadline{std::chrono::minutes(1)};
  // If a file operation of a rank takes longer than this, the world fails.
  std::chrono::milliseconds disk_deadline{std::chrono::minutes(10)};
  int flight_records = 256;  // last operations kept per rank
  // Shared memory per rank and communicator, in two areas, for buffers that peers cannot address and for
  // messages between hosts. Touched only when it is needed.
  size_t staging_bytes = size_t(4) << 20;
  // Device memory per rank and communicator, in two halves, where slices of CUDA reductions wait to be
  // summed: between processes, and between GPUs that cannot read each other's memory. Allocated at the first
  // reduction.
  size_t device_staging_bytes = size_t(64) << 20;
  // Where the flight records of all ranks go when the world fails (flight_file.h). If empty, or if the folder
  // does not exist, they go to the log.
  Path flight_folder;
  int ranks_per_host = 0;  // 0: ask the system; tests: rank r is on host r / ranks_per_host (MPI only)
};

class World {
 public:
  virtual ~World() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int local_rank() const = 0;  // among the ranks of this host
  virtual int local_size() const = 0;
  // Ranks on each host, where all hosts have the same number of consecutive ranks. 0: they do not.
  virtual int ranks_per_host() const = 0;

  // A new communicator over the group of this rank, for streams and memory of `device`, this rank's device,
  // which has the same kind on all ranks. `ranks` are those of the group, ascending, as Mesh::group gives
  // them; the communicator numbers them by their place in it. Collective over all ranks of the world, which
  // all create their communicators in the same order; groups do not overlap. Error(usage) when this build
  // does not support such devices.
  virtual std::unique_ptr<Communicator> communicator(std::string_view name, Device device,
                                                     std::span<const int> ranks, Reduction reduction) = 0;
  // With Reduction::tree.
  std::unique_ptr<Communicator> communicator(std::string_view name, Device device,
                                             std::span<const int> ranks);
  // Over all ranks.
  std::unique_ptr<Communicator> communicator(std::string_view name, Device device = {});

  // Memory for buffers that take part in collectives, so that ranks of one host read each other's without a
  // copy. Not collective. Other memory of the device works too, through staging where necessary.
  virtual Allocator allocator(Device device = {}) = 0;

  // Tells every rank that this one has failed; their pending and later collectives throw Error(peer) with
  // `reason`. Never throws, never blocks.
  virtual void fail(std::string_view reason) noexcept = 0;

  // Blocking exchange of small values, for start-up: returns the bytes of all ranks, in order. `what` names
  // them in errors and in the flight recorder.
  std::vector<std::string> exchange(std::string_view bytes, std::string_view what = "small values") {
    return exchange_values(bytes, what);
  }

  // This rank ends with `error`: writes its last operations to the flight file, if there is one. Never
  // throws.
  virtual void record_failure(std::string_view error) noexcept = 0;

  // The last operations of this rank, one per line, oldest first.
  virtual std::string flight_records() const = 0;

  // Collective: the job went well and no rank needs the others any more. Waits for all ranks; nothing may be
  // called afterwards. Processes under MPI must call it, except after a failure.
  virtual void finish() = 0;

 private:
  virtual std::vector<std::string> exchange_values(std::string_view bytes, std::string_view what) = 0;
};

// Throws Error(peer) on every rank, naming the first rank that differs, unless all ranks give the same
// `value`. `what` says what is compared; the error has both values, cut when long. Collective.
void check_same(World& world, std::string_view what, std::string_view value);

// The problem of the lowest rank that has one, returned on every rank; empty if none has. Collective.
std::string first_problem(World& world, std::string_view mine, std::string_view what);

// A world of one rank.
std::unique_ptr<World> make_self_world();

// Runs `body` on `ranks` threads of this process, each with its World. Returns when all have returned. When
// any throws, the world fails and the first original error is rethrown (an Error(peer) that only reports it
// is not original). After a failure, a rank that has made no progress for the deadline, or is stuck in a file
// operation for disk_deadline, is left behind: the error is thrown while its thread still runs, and the
// process should end without destroying what that thread may use (base/leave.h).
void run_thread_ranks(int ranks, const WorldOptions& options, const std::function<void(World&)>& body);

// The interface through which MPI finds the other processes of the job.
enum class ProcessManager { none, pmi, pmix };

// What the launcher's environment variables say about this process. launch_info() reads nothing else.
struct LaunchInfo {
  int rank = 0, size = 1, local_rank = 0, local_size = 1;
  std::string launcher;  // "mpirun", "slurm", "torchrun", "" = started by hand
  ProcessManager process_manager = ProcessManager::none;
};
LaunchInfo launch_info();

// Whether this program was built with MPI.
bool mpi_available();
// One rank per process, started by mpirun or srun. Initialises MPI; one such world per process.
std::unique_ptr<World> make_mpi_world(const WorldOptions& options);
// The counterpart of run_thread_ranks for MPI: runs `body` as this process's rank and finishes the world.
// When `body` throws, the other ranks are told and the error is rethrown. The process should then print it
// and end by std::exit or std::quick_exit, which wait until all ranks of this host have printed theirs. From
// then on SIGTERM ends the process 3 s later instead of at once.
void run_mpi_rank(const WorldOptions& options, const std::function<void(World&)>& body);

}  // namespace zeno::comm
