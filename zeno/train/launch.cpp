#include "zeno/train/launch.h"

#include <algorithm>
#include <optional>

#include "zeno/base/cache_folder.h"
#include "zeno/base/error.h"
#include "zeno/train/interrupt.h"

namespace zeno::train {

void set_folders(config::RunConfig& run) {
  if (run.cache.empty()) run.cache = cache_folder();
}

void run_ranks(const config::RunConfig& run, bool catch_signals,
               const std::function<void(comm::World&)>& body) {
  comm::WorldOptions options;
  options.deadline = std::chrono::milliseconds(int64_t(run.deadline_s * 1000));
  options.disk_deadline = std::chrono::milliseconds(int64_t(run.disk_deadline_s * 1000));
  options.flight_folder = run.out;
  std::optional<Interrupt> interrupt;
  const comm::LaunchInfo launch = comm::launch_info();
  if (launch.size > 1) {
    require(run.ranks == 0 || run.ranks == launch.size, ErrorKind::usage,
            "[train] --ranks {}: {} started {} processes; leave --ranks out", run.ranks, launch.launcher,
            launch.size);
    // Inside the body, because the world sets its own handler of SIGTERM first, which is restored after the
    // body.
    return comm::run_mpi_rank(options, [&](comm::World& world) {
      if (catch_signals) interrupt.emplace(run.save_deadline_s);
      body(world);
      interrupt.reset();
    });
  }
  if (catch_signals) interrupt.emplace(run.save_deadline_s);
  comm::run_thread_ranks(std::max<int>(1, int(run.ranks)), options, body);
}

}  // namespace zeno::train
