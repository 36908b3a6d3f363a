#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/run_flags.h"
#include "zeno/base/disk_watch.h"
#include "zeno/base/error.h"
#include "zeno/base/host.h"
#include "zeno/base/leave.h"
#include "zeno/base/log.h"
#include "zeno/checkpoint/checkpoint.h"
#include "zeno/comm/world.h"
#include "zeno/config/config_resolve.h"
#include "zeno/config/engine_options.h"
#include "zeno/config/flag_groups.h"
#include "zeno/model/config.h"
#include "zeno/plan/setting_choices.h"
#include "zeno/train/saving/peer_folder.h"
#include "zeno/train/saving/resume.h"
#include "zeno/train/supervisor.h"
#include "zeno/train/trainer.h"

namespace zeno::cli {
namespace {

// On the disk, then in memory; newest first.
std::vector<Path> checkpoints_anywhere(const config::RunConfig& run) {
  std::vector<Path> found = checkpoint::list_checkpoints(train::checkpoints_of(run));
  const std::vector<Path> in_memory = train::list_peer_snapshots(run);
  found.insert(found.end(), in_memory.begin(), in_memory.end());
  return found;
}

// As far as they are known: what follows from the model and the number of ranks when both are given.
void print_effective(config::ParsedConfig parsed) {
  const config::TrainConfig& config = parsed.config;
  const int ranks = std::max(int(config.run.ranks), comm::launch_info().size);
  config::resolve_device(parsed, config::device_of(config.run, 0).kind);
  if (config.run.choose) config::mark_open(parsed);
  const bool batch_open = config.run.choose && config.batch.micro_batch == 0;
  if (!batch_open && config::batch_can_be_resolved(parsed))
    config::resolve_batch(parsed, config::batch_ranks(config, ranks));
  if (!config.run.model.empty()) {
    const model::ModelConfig model = model::load_config(config.run.model);
    config::resolve_model(parsed, model.hidden, model.layers);
    if (config.run.seq_len == 0) {
      parsed.config.run.seq_len = config::sequence_length(config.run, model.max_positions);
      parsed.derive("zeno.seq_len", "the model's limit, at most 1024");
    }
  }
  fmt::print("{}", config::print_config(parsed));
}

// Checkpoints that exist before the run starts must be those it resumes from: a restart takes the newest.
void check_former_checkpoints(const config::RunConfig& run) {
  const std::vector<Path> found = checkpoints_anywhere(run);
  require(found.empty() || train::goes_on_from(run, found.front()), ErrorKind::usage,
          "[train] --max-restarts: {} is from an earlier run, and a restart would resume from it; give "
          "--resume auto to resume from it now, or choose another --out",
          found.empty() ? "" : found.front().string());
}

void check_supervised(const config::RunConfig& run) {
  const comm::LaunchInfo launch = comm::launch_info();
  require(launch.size <= 1, ErrorKind::usage,
          "[train] --{} inside {}: this is one process of {} and cannot restart the others; let zeno start "
          "the launcher: zeno train --launcher \"mpirun -n {}\" --max-restarts {} ...",
          run.max_restarts > 0 ? "max-restarts" : "launcher", launch.launcher, launch.size, launch.size,
          run.max_restarts);
  if (run.max_restarts == 0) return;
  require(!run.out.empty(), ErrorKind::usage, "[train] no output folder: give --out DIR");
  require(run.save_every > 0 || run.peer_snapshot > 0, ErrorKind::usage,
          "[train] --max-restarts {} without --save-every: every restart would start from the beginning; "
          "give --save-every N (steps between checkpoints), or --peer-snapshot",
          run.max_restarts);
  check_former_checkpoints(run);
}

// What a run has left in its output folder, or in memory.
train::Supervisor::Output output_of(const config::RunConfig& run, const Path& done) {
  train::Supervisor::Output output;
  if (run.max_restarts > 0) {
    if (const auto newest = checkpoint::open_latest(train::checkpoints_of(run)))
      output.newest_step = newest->manifest().step;
    for (const Path& path : train::list_peer_snapshots(run))
      output.newest_step = std::max(output.newest_step, checkpoint::step_of(path.filename().string()));
  }
  output.done = file_exists(done);
  // Last: this is asked again when any of it fails, and the file is the proof.
  if (output.done) remove_file(done);
  return output;
}

// The run as a process of its own. Once it has checkpoints, a restart resumes from them; until then, from
// where the user said.
int supervise(const RunFlags& flags, const config::ParsedConfig& parsed) {
  const config::RunConfig& run = parsed.config.run;
  set_log_rank(-1);  // from here on this process is no rank
  // Where the ranks write too, on whichever host.
  const Path done = Path(run.out) / fmt::format(".done-{}-{}", host_name(), getpid());
  const std::chrono::milliseconds disk_deadline(int64_t(run.disk_deadline_s * 1000));
  train::Supervisor supervisor({
      .launcher = train::split_words(run.launcher),
      .arguments =
          [&](bool restart, const train::Supervisor::Output& output) {
            RunFlags child = flags;
            const auto set = [&](const std::string& key, const std::string& flag, const std::string& value) {
              std::erase_if(child.overrides, [&](const auto& old) { return old.key == key; });
              child.overrides.push_back({key, value, flag});
            };
            if (parsed.given("zeno.max_restarts")) set("zeno.max_restarts", "--max-restarts", "0");
            if (parsed.given("zeno.launcher")) set("zeno.launcher", "--launcher", "");
            if (restart && (run.resume.empty() || output.newest_step)) set("zeno.resume", "--resume", "auto");
            set("zeno.done_file", "--done-file", done.string());
            return child.words();
          },
      .output = [run, done] { return output_of(run, done); },
      .max_restarts = run.max_restarts,
      .save_deadline = std::chrono::seconds(run.save_deadline_s),
      .disk_deadline = disk_deadline,
  });
  const int code = supervisor.run();
  const DiskWatch watch(disk_deadline);
  if (code == 0 && !run.done_file.empty()) replace_file(run.done_file, "");
  return code;
}

// The commands that most people need.
constexpr const char* kExamples =
    "Examples\n"
    "  Fine-tune a model on chats, instructions or texts (JSONL):\n"
    "    zeno train --model DIR --data chats.jsonl --out tuned\n"
    "  Train a LoRA adapter on a 4-bit base, for a large model in little memory:\n"
    "    zeno train --model DIR --data chats.jsonl --out tuned --lora-rank 16 --quantize-base nf4\n"
    "  Hold out some samples, evaluate on them and keep the best model:\n"
    "    zeno train --model DIR --data chats.jsonl --out tuned --eval-split 0.05 --keep-best\n"
    "  Use eight ranks and a DeepSpeed config (for several hosts, put mpirun before zeno):\n"
    "    zeno train --model DIR --data chats.jsonl --out tuned --config ds.json --ranks 8\n"
    "  Save every 200 steps, and resume if the run was stopped:\n"
    "    zeno train --model DIR --data chats.jsonl --out tuned --save-every 200 --resume auto";

}  // namespace

void add_train(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "train or fine-tune a model");
  auto flags = std::make_shared<RunFlags>();
  auto print_only = std::make_shared<bool>(false);
  flags->add_to(*command);
  command
      ->add_flag("--print-config", *print_only,
                 "print the effective values and where each came from, then exit")
      ->group(std::string(config::kOutputFlags));
  command->footer(kExamples);
  command->callback([flags, print_only] {
    set_log_rank(comm::launch_info().rank);  // one process of many: rank 0 speaks for all
    // Whoever read what is said may be gone (| tee, a lost terminal): training, and above all saving, goes
    // on.
    std::signal(SIGPIPE, SIG_IGN);
    // Ranks have deadlines of their own, and a supervisor can have no threads.
    std::optional<DiskWatch> watch(std::in_place);
    const config::ParsedConfig parsed = flags->parse();
    if (*print_only) return print_effective(parsed);
    const config::RunConfig& run = parsed.config.run;
    watch.emplace(std::chrono::milliseconds(int64_t(run.disk_deadline_s * 1000)));
    // Of an earlier run: whatever fails from here on, it must not be there.
    if (!run.done_file.empty() && comm::launch_info().rank == 0) remove_file(run.done_file);
    const bool supervised = run.max_restarts > 0 || !run.launcher.empty();
    if (supervised) check_supervised(run);
    watch.reset();
    if (supervised) leave(supervise(*flags, parsed));
    train::train(parsed);
  });
}

}  // namespace zeno::cli
