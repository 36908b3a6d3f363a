#include "zeno/train/run_setup.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/config/config_resolve.h"
#include "zeno/config/engine_options.h"
#include "zeno/config/tuning.h"
#include "zeno/model/layers.h"
#include "zeno/plan/auto_setting.h"
#include "zeno/train/agreement.h"
#include "zeno/train/build_progress.h"
#include "zeno/train/first_sample.h"
#include "zeno/train/launch.h"
#include "zeno/train/saving/output_folder.h"

namespace zeno::train {
namespace {

Device device_of(const config::RunConfig& run, const comm::World& world) {
  return config::device_of(run, world.local_rank());
}

// Checks that all ranks have the same config and locks the output folder. The device decides the dtype.
config::ParsedConfig begin(config::ParsedConfig parsed, comm::World& world,
                           std::unique_ptr<const FolderLock>& lock) {
  set_log_rank(world.rank());
  set_folders(parsed.config.run);
  require(!parsed.config.run.model.empty(), ErrorKind::usage, "[train] no model: give --model DIR");
  require(!parsed.config.run.out.empty(), ErrorKind::usage, "[train] no output folder: give --out DIR");
  agree_on_inputs(parsed, world);
  lock_output_folder(parsed.config.run, world, lock);  // before looking at what the folder holds
  config::resolve_device(parsed, device_of(parsed.config.run, world).kind);
  config::check_disk_folders(parsed);
  return parsed;
}

int64_t total_steps(const config::RunConfig& run, const data::Loader& loader) {
  if (run.steps > 0) return run.steps;
  return std::max<int64_t>(1, std::llround(run.epochs * double(loader.steps_per_epoch())));
}

}  // namespace

RunSetup::RunSetup(config::ParsedConfig config, comm::World& world, std::unique_ptr<const FolderLock>& lock)
    : parsed(begin(std::move(config), world, lock)),
      model(model::load_config(parsed.config.run.model)),
      warnings_told(parsed.warnings.size()),
      peers(parsed.config.run, world),
      resume(find_resume(world)),
      seq_len(settle_sizes(world)),
      data(open_data(world, lock)),
      steps(settle_steps()) {
  for (size_t i = warnings_told; world.rank() == 0 && i < parsed.warnings.size(); ++i)
    log_warning("{}", parsed.warnings[i]);
}

// A resumed run keeps its batch and what the planner chose for it.
std::optional<ResumePoint> RunSetup::find_resume(comm::World& world) {
  zero::Policy policy;
  zero::apply_stage(policy, parsed.config.zero.stage);
  const bool replicated = policy.optimizer.empty();
  std::optional<ResumePoint> found = find_resume_point(parsed.config.run, peers.find(replicated), world);
  if (found) {
    adopt_batch(parsed, found->state, config::batch_ranks(parsed.config, world.size()));
    adopt_setting(parsed, found->state);
  }
  return found;
}

// Decides sizes that depend on the model, and the batch unless the planner chooses it.
int64_t RunSetup::settle_sizes(comm::World& world) {
  config::resolve_model(parsed, model.hidden, model.layers);
  const int64_t seq = config::sequence_length(parsed.config.run, model.max_positions);
  if (!parsed.config.run.choose)
    config::resolve_batch(parsed, config::batch_ranks(parsed.config, world.size()));
  return seq;
}

// Checks everything that can be checked before the data is read, which may take long. A run that cannot be
// saved should not start.
void RunSetup::check(comm::World& world, const std::unique_ptr<const FolderLock>& lock) {
  const config::TrainConfig& config = parsed.config;
  const config::RunConfig& run = config.run;
  check_output_folder(config, world, lock);
  model::build_layers(model, seq_len, config::tuning_of(config));
  const Device device = device_of(run, world);
  const bool gpu = device.kind == Device::Kind::cuda;
  require(gpu || !run.limit_gpu_clock, ErrorKind::usage,
          "[train] --limit-gpu-clock: got a CPU, expected a GPU; leave it out");
  require(gpu || config.precision.matmul != config::MatmulDtype::fp8, ErrorKind::usage,
          "[train] --matmul-dtype fp8: got a CPU, expected a GPU; use --device cuda, or leave it out");
  if (world.rank() == 0 && !run.trace.empty()) File::create(run.trace);
  if (run.save_every > 0) agree_on_output(run.out, world);
  if (run.limit_gpu_clock) clock.emplace(pci_address(device));
}

// The planner chooses after the data is open, because a batch that is not given depends on the size of the
// data.
RunData RunSetup::open_data(comm::World& world, const std::unique_ptr<const FolderLock>& lock) {
  check(world, lock);
  const config::TrainConfig& config = parsed.config;
  RunData opened = open_run_data(config, model.vocab, seq_len, world, build_progress(world.rank()));
  if (config.run.choose) {
    plan::choose_setting(parsed, model, seq_len, opened.train_sequences(), world);
    config::resolve_batch(parsed, config::batch_ranks(parsed.config, world.size()));
  }
  opened.deal(config, world);
  if (world.rank() == 0 && !resume) show_first_sample(config, opened, seq_len);
  return opened;
}

// Decides the number of steps, which schedules need.
int64_t RunSetup::settle_steps() {
  const int64_t total = total_steps(parsed.config.run, data.train());
  config::resolve_steps(parsed, total);
  return total;
}

}  // namespace zeno::train
