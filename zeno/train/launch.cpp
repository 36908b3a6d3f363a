// train(): who the ranks are and how their errors come together.
#include <pwd.h>
#include <unistd.h>

#include "zeno/base/error.h"
#include "zeno/train/trainer.h"

namespace zeno::train {
namespace {

// Flags of parts that are not built yet are refused, never ignored.
void refuse_missing_parts(const RunConfig& run) {
  require(run.save_every == 0 && run.resume.empty(), ErrorKind::usage,
          "[train] --save-every and --resume: checkpoints are not part of this version; leave them out, the "
          "model is "
          "saved at the end");
  require(run.eval_data.empty() && run.eval_every == 0, ErrorKind::usage,
          "[train] --eval-data and --eval-every: evaluation is not part of this version; leave them out");
}

// In the home of the account, as the system knows it: the environment is for launchers.
std::string cache_folder() {
  const passwd* account = getpwuid(getuid());
  return std::string(account != nullptr ? account->pw_dir : "/tmp") + "/.cache/zeno";
}

}  // namespace

void train(ParsedConfig parsed) {
  RunConfig& run = parsed.config.run;
  if (run.cache.empty()) run.cache = cache_folder();
  refuse_missing_parts(run);
  comm::WorldOptions options;
  options.deadline = std::chrono::milliseconds(int64_t(run.deadline_s * 1000));
  const comm::LaunchInfo launch = comm::launch_info();
  if (launch.size > 1) {
    require(run.ranks == 0 || run.ranks == launch.size, ErrorKind::usage,
            "[train] --ranks {}: {} started {} processes; leave --ranks out", run.ranks, launch.launcher,
            launch.size);
    return comm::run_mpi_rank(options, [&](comm::World& world) { train_rank(parsed, world); });
  }
  comm::run_thread_ranks(std::max<int>(1, int(run.ranks)), options,
                         [&](comm::World& world) { train_rank(parsed, world); });
}

}  // namespace zeno::train
