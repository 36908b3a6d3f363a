// Engines that train, save and go on, as a run does, without its data and its files.
#pragma once

#include <string>
#include <vector>

#include "tests/support/train_run.h"
#include "zeno/base/log.h"
#include "zeno/train/saving/checkpoint_saver.h"

namespace zeno::test {

inline constexpr int64_t kSavedPiece = 1 << 14;  // elements of an extent of a checkpoint

inline zero::Engine make_engine(const RunSpec& spec, comm::World& world) {
  set_log_rank(world.rank());
  zero::EngineOptions options = options_of(spec);
  options.snapshot_piece = kSavedPiece;
  return {model_of(spec), options, world};
}

// Steps `first` to `end`, which see the same batches on any number of ranks; returns their losses.
inline std::vector<double> train_steps(const RunSpec& spec, zero::Engine& engine, comm::World& world,
                                       int first, int end) {
  std::vector<double> losses;
  for (int step = first; step < end; ++step) {
    const std::vector<OwnedBatch> owned = batches_of(spec, world.rank(), step);
    std::vector<zero::MicroBatch> views;
    for (const OwnedBatch& batch : owned) views.push_back(batch.view());
    zero::StepControl control;
    control.hyper = {.lr = 1e-2f, .weight_decay = 0.1f, .step = step + 1};
    losses.push_back(engine.step(views, control).loss);
  }
  return losses;
}

// Collective. What went wrong; empty: nothing.
inline std::string save(const Path& folder, int64_t step, zero::Engine& engine, comm::World& world) {
  train::CheckpointSaver saver({.folder = folder, .retention = {.keep_last = 0}}, engine, world);
  return saver.start(step, "{}") ? saver.finish() : "the save did not start";
}

}  // namespace zeno::test
