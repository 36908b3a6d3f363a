// Evaluation during and after training, and for `zeno eval`: when it is due, and the engine's pass over the
// evaluation data.
#pragma once

#include <cstdint>
#include <optional>

#include "zeno/config/config.h"
#include "zeno/data/loader.h"
#include "zeno/report/metrics.h"
#include "zeno/zero/engine.h"

namespace zeno::train {

// The batches as the engine takes them: views, valid as long as the batches.
std::vector<zero::MicroBatch> views_of(const std::vector<data::HostBatch>& batches);

// Whether there is an evaluation after step `step` of `steps` (0: before the first).
bool evaluation_due(const config::EvalConfig& config, int64_t step, int64_t steps, int64_t steps_per_epoch);

// Collective: one pass over the data of `loader`, which does not shuffle. Returns nothing if a signal
// requested a stop.
std::optional<report::EvalRecord> evaluate(zero::Engine& engine, const data::Loader& loader);

}  // namespace zeno::train
