#include "zeno/train/saving/deepspeed_resume.h"

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/base/workers.h"
#include "zeno/checkpoint/deepspeed_folder.h"
#include "zeno/model/deepspeed_weights.h"
#include "zeno/model/weights.h"
#include "zeno/train/agreement.h"

namespace zeno::train {
namespace {

using checkpoint::DeepSpeedCheckpoint;
using checkpoint::DeepSpeedState;
using zero::State;

RunState run_state_of(const DeepSpeedCheckpoint& checkpoint) {
  const checkpoint::DeepSpeedRun& run = checkpoint.run();
  RunState state;
  state.loop.steps = run.steps;
  state.loop.skipped = run.skipped;
  if (run.loss_scale) {
    state.loop.scale = config::LossScaleState{.scale = run.loss_scale->scale,
                                              .hysteresis_left = run.loss_scale->hysteresis_left,
                                              .iteration = run.loss_scale->iteration,
                                              .last_overflow = run.loss_scale->last_overflow};
  }
  if (run.steps > 0 && run.samples % run.steps == 0) state.train_batch = run.samples / run.steps;
  state.micro_batch = std::max<int64_t>(run.micro_batch, 1);
  return state;
}

void require_on_all(std::string problem, comm::World& world) {
  problem = comm::first_problem(world, problem, "problems of a restore");
  require(problem.empty(), ErrorKind::data, "{}", problem);
}

void require_moments(const DeepSpeedCheckpoint& checkpoint) {
  const bool moments = std::ranges::any_of(checkpoint.tensors(), [](const auto& tensor) {
    return tensor.has(DeepSpeedState::first_moment) && tensor.has(DeepSpeedState::second_moment);
  });
  const std::string& reason = checkpoint.run().without_moments;
  require(moments, ErrorKind::data,
          "[resume] {}: holds no Adam moments{}{}; export a model with zeno export and start from that",
          checkpoint.folder().string(), reason.empty() ? "" : ": ", reason);
}

// Reads values of one state. Frozen parameters are read from the model folder and have no moments.
model::WeightReader reader_of(std::shared_ptr<const DeepSpeedCheckpoint> checkpoint, DeepSpeedState state,
                              const zero::Engine& engine) {
  std::vector<nn::Parameter> table = engine.units().params;
  if (state != DeepSpeedState::master)
    std::erase_if(table, [](const nn::Parameter& param) { return !param.trainable; });
  const std::string where = checkpoint->folder().string();
  model::WeightReader reader(std::make_unique<model::DeepSpeedSource>(std::move(checkpoint), state), table);
  require(state == DeepSpeedState::master || reader.unused().empty(), ErrorKind::data,
          "[resume] {}: {} was trained there and is frozen or missing here; train the same parameters", where,
          reader.unused().empty() ? "" : reader.unused()[0]);
  return reader;
}

void load(const std::map<State, model::WeightReader>& readers, zero::Engine& engine) {
  engine.load_states([&](const zero::Engine::Loading& loading) {
    Workers workers(loading.in_order ? 1 : loading.cores);
    std::vector<std::vector<float>> staging(static_cast<size_t>(workers.threads()));
    workers.for_each(int64_t(loading.runs.size()), [&](int64_t i, int thread) {
      const zero::Engine::StateRun& run = loading.runs[size_t(i)];
      std::vector<float>& values = staging[size_t(thread)];
      values.resize(size_t(run.count));
      readers.at(run.state).read(engine.units().params[size_t(run.param)], run.begin, run.begin + run.count,
                                 values.data());
      loading.place(run, run.begin, {DType::f32, std::as_writable_bytes(std::span(values))});
    });
  });
}

void restore_all(const Path& folder, zero::Engine& engine) {
  const auto checkpoint = std::make_shared<const DeepSpeedCheckpoint>(DeepSpeedCheckpoint::open(folder));
  for (const nn::Parameter& param : engine.units().params) {
    require(!param.adapter, ErrorKind::data,
            "[resume] {}: is a DeepSpeed checkpoint, which resumes as a whole model, but this run trains an "
            "adapter; export a model with zeno export and train the adapter on that",
            folder.string());
  }
  require(engine.policy().moments_first && engine.policy().moments_second, ErrorKind::usage,
          "[resume] {}: holds Adam moments, which this run's optimizer cannot use; use Adam or AdamW, or "
          "export a model with zeno export and start from that",
          folder.string());
  std::map<State, model::WeightReader> readers;
  readers.emplace(State::master, reader_of(checkpoint, DeepSpeedState::master, engine));
  readers.emplace(State::first_moment, reader_of(checkpoint, DeepSpeedState::first_moment, engine));
  readers.emplace(State::second_moment, reader_of(checkpoint, DeepSpeedState::second_moment, engine));
  load(readers, engine);
  const checkpoint::DeepSpeedRun& run = checkpoint->run();
  const int64_t updates = run.steps - run.skipped;
  if (run.adam_steps != 0 && run.adam_steps != updates) {
    log_warning(
        "[resume] {}: Adam counted {} updates, the run {}; bias correction and schedule follow the run",
        folder.string(), run.adam_steps, updates);
  }
}

}  // namespace

std::optional<ResumePoint> find_deepspeed_point(const Path& folder, comm::World& world) {
  std::optional<DeepSpeedCheckpoint> checkpoint;
  std::string problem;
  try {
    if (const std::optional<Path> tag = checkpoint::find_deepspeed(folder)) {
      checkpoint = DeepSpeedCheckpoint::open(*tag);
      require_moments(*checkpoint);
    }
  } catch (const Error& error) {
    problem = error.what();
  }
  require_on_all(problem, world);
  agree_on_deepspeed(checkpoint ? &*checkpoint : nullptr, world);
  if (!checkpoint) return std::nullopt;
  return ResumePoint{
      .folders = {checkpoint->folder()}, .state = run_state_of(*checkpoint), .deepspeed = true};
}

RunState restore_deepspeed(const ResumePoint& point, const RunState& now, zero::Engine& engine,
                           comm::World& world) {
  const Path& folder = point.folders.front();
  std::string problem;
  try {
    restore_all(folder, engine);
  } catch (const Error& error) {
    problem = error.what();
  }
  require_on_all(problem, world);
  RunState state = now;
  state.loop = point.state.loop;
  const int64_t then = point.state.train_batch;
  log_info(
      "[resume] resuming after step {} from DeepSpeed's {}; from step {} on, the data is this run's own, {} "
      "sequences per step{}",
      state.loop.steps, folder.string(), state.loop.steps + 1, now.train_batch,
      then == now.train_batch ? "" : fmt::format(" (there: {})", then));
  return state;
}

}  // namespace zeno::train
