// From a resolved config and a model folder to an engine with the folder's weights in it.
#pragma once

#include <memory>

#include "zeno/comm/world.h"
#include "zeno/config/config.h"
#include "zeno/model/config.h"
#include "zeno/model/layers.h"
#include "zeno/plan/offload.h"
#include "zeno/zero/engine.h"

namespace zeno::train {

struct RunEngine {
  std::unique_ptr<zero::Engine> engine;
  model::Tuning tuning;
  size_t memory_limit = 0;    // bytes a rank may use
  double planned_step_s = 0;  // by the measured rates of this machine; 0: not measured
};

// Collective. `trains` false: an engine that only evaluates. Error(memory) if it does not fit, with the
// smallest change that makes it fit.
RunEngine make_engine(const config::TrainConfig& config, const model::ModelConfig& model, int64_t seq_len,
                      comm::World& world, bool trains = true);

}  // namespace zeno::train
