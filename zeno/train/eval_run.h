// Evaluation of a model folder over data, without training: what `zeno eval` does.
#pragma once

#include "zeno/config/config_parser.h"
#include "zeno/report/metrics.h"

namespace zeno::train {

// Starts the ranks of a config (launch.h) and evaluates the model on config.run.data, every sample once.
// Needs no memory for gradients or optimizer states. The result does not depend on the number of ranks, the
// stage or the order.
report::EvalRecord evaluate_model(config::ParsedConfig parsed);

}  // namespace zeno::train
