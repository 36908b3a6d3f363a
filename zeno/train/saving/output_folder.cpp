#include "zeno/train/saving/output_folder.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/base/file.h"
#include "zeno/base/log.h"
#include "zeno/checkpoint/checkpoint.h"
#include "zeno/comm/joint_error.h"
#include "zeno/config/tuning.h"
#include "zeno/train/saving/resume.h"

namespace zeno::train {
namespace {

constexpr const char* kModelFile = "config.json";
constexpr const char* kAdapterFile = "adapter_config.json";

void check_other_folders(const config::TrainConfig& config) {
  const config::RunConfig& run = config.run;
  require(!same_file(run.model, run.out), ErrorKind::usage,
          "[train] --out {}: is the model's own folder, which the result would replace; choose another",
          run.out);
  require(!same_file(config.lora.adapter, run.out), ErrorKind::usage,
          "[train] --out {}: is the adapter's own folder, which the result would replace; choose another",
          run.out);
}

void check_checkpoints(const config::RunConfig& run) {
  const std::vector<Path> former = checkpoint::list_checkpoints(checkpoints_of(run));
  require(former.empty() || goes_on_from(run, former.front()), ErrorKind::usage,
          "[train] --out {}: holds checkpoints of an earlier run, up to {}, which a later --resume could not "
          "tell from those of this run; resume from the newest with --resume auto, move them away, or choose "
          "another --out",
          run.out, former.empty() ? "" : former.front().filename().string());
}

void check(const config::TrainConfig& config, bool waited) {
  const config::RunConfig& run = config.run;
  check_other_folders(config);
  check_checkpoints(run);
  const bool lora = config::tuning_of(config).lora.has_value();
  const char* mine = lora ? kAdapterFile : kModelFile;
  const char* other = lora ? kModelFile : kAdapterFile;
  require(!file_exists(Path(run.out) / other), ErrorKind::usage,
          "[train] --out {}: holds {}, and this run would add {}; choose another folder", run.out,
          lora ? "a whole model" : "an adapter", lora ? "an adapter" : "a whole model");
  if (!file_exists(Path(run.out) / mine)) return;
  require(file_exists(Path(run.out) / "metrics.csv"), ErrorKind::usage,
          "[train] --out {}: holds {} that no training run wrote and that would be overwritten; choose "
          "another folder",
          run.out, lora ? "an adapter" : "a model");
  if (!run.resume.empty()) return;
  require(!waited, ErrorKind::usage,
          "[train] --out {}: another run has just ended there, and this one would replace its result; choose "
          "another folder, or start again to replace it",
          run.out);
  log_warning("[train] --out {}: holds the result of an earlier run; this run will replace it", run.out);
}

}  // namespace

void lock_output_folder(const config::RunConfig& run, comm::World& world,
                        std::unique_ptr<const FolderLock>& lock) {
  // The other ranks are waiting, so this must take less than their deadline.
  const std::chrono::milliseconds half(int64_t(run.deadline_s * 500));
  comm::work_together(world, "the lock of --out", [&] {
    if (world.rank() == 0)
      lock = std::make_unique<const FolderLock>(
          run.out, std::min<std::chrono::milliseconds>(std::chrono::seconds(3), half));
  });
}

void check_output_folder(const config::TrainConfig& config, comm::World& world,
                         const std::unique_ptr<const FolderLock>& lock) {
  comm::work_together(world, "what is in --out", [&] {
    if (world.rank() == 0) check(config, lock->waited());
  });
}

}  // namespace zeno::train
