// The values that depend on others or on what is known only later: the world size, the model, the length of
// the run. Each step may be repeated; all of them record in `origins` what they derived.
#pragma once

#include <cstdint>

#include "zeno/train/config_parser.h"

namespace zeno::train {

// Called by parse_config: dtypes, overlap, optimizer algorithm, schedule, recomputation, and the rules
// between keys.
void resolve_values(ParsedConfig& parsed);

// train = micro × accumulation × world: any two give the third, train or micro alone means accumulation 1.
// Throws when the product does not come out or too little is given. A flag wins over a conflicting value from
// the file.
void resolve_batch(ParsedConfig& parsed, int64_t world);
// Is enough given for that, or left to us ("auto", or no file)?
bool batch_can_be_resolved(const ParsedConfig& parsed);
// The same rule on values alone.
void resolve_batch(TrainConfig& config, int64_t world);

// "auto" sizes as HF Trainer sets them (bucket hidden², prefetch 0.9 hidden², persistence 10 hidden), and
// number_checkpoints as a distance between kept blocks.
void resolve_model(ParsedConfig& parsed, int64_t hidden_size, int64_t blocks);

// The length of the run for schedules that need it and were not given one; call when it follows from epochs.
void resolve_steps(ParsedConfig& parsed, int64_t total_steps);

}  // namespace zeno::train
