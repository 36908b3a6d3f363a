#include "zeno/train/saving/resume.h"

#include <algorithm>
#include <functional>

#include "zeno/base/error.h"
#include "zeno/base/file.h"
#include "zeno/base/log.h"
#include "zeno/base/newer_version.h"
#include "zeno/base/text_list.h"
#include "zeno/checkpoint/checkpoint.h"
#include "zeno/comm/joint_error.h"
#include "zeno/train/agreement.h"
#include "zeno/train/long_work.h"
#include "zeno/train/saving/checkpoint_state.h"
#include "zeno/train/saving/deepspeed_resume.h"

namespace zeno::train {
namespace {

using checkpoint::Checkpoint;

RunState state_of(const Path& folder) {
  return parse_run_state(checkpoint::read_manifest(folder).run, folder.string());
}

// What is on the disk: checkpoints whose manifest and headers are intact, newest first. `damage` is the error
// of the oldest damaged checkpoint.
struct Found {
  std::vector<Path> folders;
  std::string damage;
};

// Only a damaged checkpoint makes --resume auto fall back to an older one. After any other error (a limit, a
// disk that is offline, a checkpoint of a newer Zeno) the run ends, and newer checkpoints stay.
bool is_damage(const Error& error) {
  return error.kind() == ErrorKind::data && dynamic_cast<const NewerVersion*>(&error) == nullptr;
}

Found look_for_checkpoints(const config::RunConfig& run) {
  const bool automatic = run.resume == "auto";
  std::vector<Path> there{run.resume};
  if (automatic) there = checkpoint::list_checkpoints(checkpoints_of(run));
  // The output folder of a run means its newest checkpoint.
  const std::vector<Path> below = checkpoint::list_checkpoints(Path(run.resume) / "checkpoints");
  if (!automatic && !below.empty()) there = {below.front()};
  Found found;
  for (const Path& path : there) {
    try {
      Checkpoint::open(path);
      found.folders.push_back(path);
    } catch (const Error& error) {
      if (!automatic || !is_damage(error)) throw;
      found.damage = error.what();
      log_warning("{}; trying an older checkpoint", found.damage);
    }
  }
  return found;
}

// All ranks take what rank 0 finds, each under its own path.
Found find_on_disk(const config::RunConfig& run, comm::World& world) {
  const Path base = run.resume == "auto" ? checkpoints_of(run) : Path(run.resume);
  std::vector<std::string> texts;
  std::function<void(std::stop_token)> look;
  if (world.rank() == 0) {
    look = [&](const std::stop_token&) {
      const Found mine = look_for_checkpoints(run);
      texts.push_back(mine.damage);
      for (const Path& path : mine.folders) texts.push_back(path.lexically_relative(base).string());
    };
  }
  work_long_together(world, "checkpoints to resume from", look);
  texts = unpack_texts(world.exchange(pack_texts(texts), "checkpoints of rank 0")[0]);
  Found found{.folders = {}, .damage = texts.front()};
  for (auto text = texts.begin() + 1; text != texts.end(); ++text)
    found.folders.push_back(*text == "." ? base : base / *text);
  return found;
}

// Returns what is damaged, empty if nothing is; the same on all ranks.
std::string try_restore(const Path& folder, const RunState& now, zero::Engine& engine, comm::World& world,
                        RunState& state) {
  std::string damage;
  comm::work_together(world, "failures of a restore", [&] {
    try {
      const Checkpoint checkpoint = Checkpoint::open(folder, checkpoint::Files::present);
      state = parse_run_state(checkpoint.manifest().run, folder.string());
      require_same_run(state, now, folder.string());
      if (!state.adapter.empty() && state.model != now.model && world.rank() == 0) {
        log_warning(
            "[resume] {}: the adapter was trained on {}, and the base is {} now; they must be the same model",
            folder.string(), state.model, now.model);
      }
      restore(checkpoint, engine);
    } catch (const Error& error) {
      if (!is_damage(error)) throw;
      damage = error.what();
    }
  });
  return comm::first_problem(world, damage, "damage of checkpoints");
}

}  // namespace

Path checkpoints_of(const config::RunConfig& run) { return Path(run.out) / "checkpoints"; }

bool goes_on_from(const config::RunConfig& run, const Path& newest) {
  return run.resume == "auto" || same_file(run.resume, newest) || same_file(run.resume, run.out);
}

std::string base_model_of(const Path& checkpoint) { return state_of(checkpoint).model; }

std::optional<ResumePoint> find_resume_point(const config::RunConfig& run, const std::vector<Path>& in_memory,
                                             comm::World& world) {
  if (run.resume.empty()) return std::nullopt;
  if (run.resume != "auto") {
    if (std::optional<ResumePoint> point = find_deepspeed_point(run.resume, world)) return point;
  }
  const Found found = find_on_disk(run, world);
  ResumePoint point;
  point.folders = found.folders;
  if (!point.folders.empty()) agree_on_checkpoint(point.folders.front(), world);
  // Sorted by step; of two with the same step the one in memory comes first, because it is read faster.
  point.folders.insert(point.folders.begin(), in_memory.begin(), in_memory.end());
  std::ranges::stable_sort(point.folders, std::greater<>{},
                           [](const Path& path) { return checkpoint::step_of(path.filename().string()); });
  if (point.folders.empty()) {
    require(found.damage.empty(), ErrorKind::data,
            "[resume] no complete checkpoint is left: {}; to start from the beginning, move {} away",
            found.damage, checkpoints_of(run).string());
    log_info("[resume] no checkpoint in {}: starting from the beginning", checkpoints_of(run).string());
    return std::nullopt;
  }
  point.state = state_of(point.folders.front());
  return point;
}

void adopt_batch(config::ParsedConfig& parsed, const RunState& saved, int batch_ranks) {
  config::BatchConfig& batch = parsed.config.batch;
  const bool given = parsed.given("train_batch_size") || parsed.given("gradient_accumulation_steps");
  if (given || saved.train_batch == 0) return;  // a DeepSpeed checkpoint may not have it
  if (batch.micro_batch == 0) batch.micro_batch = saved.micro_batch;
  require(saved.train_batch % batch_ranks == 0, ErrorKind::usage,
          "[resume] the run was saved with {} sequences per step, which cannot be split evenly over {} "
          "ranks; use a number of ranks that divides it",
          saved.train_batch, batch_ranks);
  const int64_t per_rank = saved.train_batch / batch_ranks;
  while (per_rank % batch.micro_batch != 0) --batch.micro_batch;
  batch.train_batch = saved.train_batch;
  batch.grad_accum = per_rank / batch.micro_batch;
}

void adopt_setting(config::ParsedConfig& parsed, const RunState& saved) {
  if (!parsed.config.run.choose || saved.stage < 0) return;
  config::BatchConfig& batch = parsed.config.batch;
  if (batch.micro_batch == 0 && batch.grad_accum == 0 && batch.train_batch == saved.train_batch)
    batch.micro_batch = saved.micro_batch;  // if it does not divide, resolve_batch's error says what does
  const auto adopt = [&](const char* key, auto& field, auto value) {
    if (parsed.given(key)) return;
    field = value;
    parsed.derive(key, "as in the checkpoint");
  };
  adopt("zero_optimization.stage", parsed.config.zero.stage, saved.stage);
  const bool vertical = saved.order == config::text_of(config::MicroBatchOrder::vertical);
  adopt("zeno.order", parsed.config.run.order,
        vertical ? config::MicroBatchOrder::vertical : config::MicroBatchOrder::horizontal);
}

RunState restore_newest(const ResumePoint& point, const RunState& now, zero::Engine& engine,
                        comm::World& world) {
  if (point.deepspeed) return restore_deepspeed(point, now, engine, world);
  std::string problem;
  for (const Path& folder : point.folders) {
    RunState state;
    problem = try_restore(folder, now, engine, world, state);
    if (problem.empty()) {
      log_info("[resume] resuming after step {} from {}", state.loop.steps, folder.string());
      return state;
    }
    log_warning("{}", problem);
  }
  fail(ErrorKind::data, "[resume] no complete checkpoint is left: {}", problem);
}

}  // namespace zeno::train
