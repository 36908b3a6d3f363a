#include "zeno/comm/mpi/mpi_start.h"

#include <mpi.h>

#include "zeno/base/error.h"
#include "zeno/base/leave.h"
#include "zeno/base/log.h"
#include "zeno/base/watch.h"
#include "zeno/comm/mpi/mpi_hub.h"

namespace zeno::comm {
namespace {

// If Open MPI finds no process manager, it prints a page of text and ends the process with exit code 1.
void check_launcher(const LaunchInfo& launch) {
  if (launch.launcher != "slurm" || launch.process_manager == ProcessManager::pmix) return;
  require(launch.process_manager != ProcessManager::none, ErrorKind::usage,
          "[comm] srun started rank {} of {} without PMIx, so MPI cannot find the other ranks; use "
          "srun --mpi=pmix (srun --mpi=list shows what this Slurm has), or mpirun inside the allocation",
          launch.rank, launch.size);
  if (launch.rank == 0) {
    log_warning(
        "[comm] srun started the ranks with PMI but without PMIx, which many builds of MPI need; if MPI "
        "fails now, use srun --mpi=pmix");
  }
}

void initialise(std::chrono::milliseconds deadline, const LaunchInfo& launch, int* provided) {
  const Watch limit([=, begin = std::chrono::steady_clock::now()] {
    if (std::chrono::steady_clock::now() - begin < deadline) return false;
    leave(exit_code(ErrorKind::peer),
          fmt::format("[comm] MPI has not started within {:.1f} s on rank {} of {}; another rank did not "
                      "start, or its host cannot be reached; see what the launcher says about it",
                      std::chrono::duration<double>(deadline).count(), launch.rank, launch.size));
  });
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, provided), "start");
}

void check_size(const LaunchInfo& launch) {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size > 1 || launch.size == 1) return;
  MPI_Finalize();
  fail(ErrorKind::usage,
       "[comm] {} says that this is rank {} of {}, but MPI sees one process; MPI carries the messages, so "
       "start with mpirun -n {} or srun --mpi=pmix",
       launch.launcher, launch.rank, launch.size, launch.size);
}

}  // namespace

void start_mpi(std::chrono::milliseconds deadline) {
  const LaunchInfo launch = launch_info();
  int started = 0, provided = MPI_THREAD_SINGLE;
  MPI_Initialized(&started);
  if (started != 0) {
    MPI_Query_thread(&provided);
  } else {
    check_launcher(launch);
    initialise(deadline, launch, &provided);
  }
  require(
      provided == MPI_THREAD_MULTIPLE, ErrorKind::usage,
      "[comm] this MPI gives thread level {}, expected MPI_THREAD_MULTIPLE ({}); use an MPI built with it",
      provided, MPI_THREAD_MULTIPLE);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  check_size(launch);
}

}  // namespace zeno::comm
