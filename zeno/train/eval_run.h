// Evaluation of a model folder over data, without training: what `zeno eval` does.
#pragma once

#include "zeno/train/config_parser.h"
#include "zeno/train/metrics.h"

namespace zeno::train {

// Starts the ranks a config asks for (launch.h) and evaluates the model on config.run.data, every sample
// once. Needs no memory for gradients or optimizer state. Ranks, stage and order do not change the result.
EvalRecord evaluate_model(ParsedConfig parsed);

}  // namespace zeno::train
