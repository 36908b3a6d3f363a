// Values that depend on others or that are known only later: the world size, the model, the length of the
// run. Each step may be repeated; each records in `origins` what it derived.
#pragma once

#include <cstdint>

#include "zeno/config/config_parser.h"
#include "zeno/device/device.h"

namespace zeno::config {

// Called by parse_config first: the defaults for values that are not given.
void fill_defaults(ParsedConfig& parsed);

// Called by parse_config: dtypes, overlap, optimizer algorithm, schedule, recomputation, and the rules
// between keys.
void resolve_values(ParsedConfig& parsed);

// Sets the compute dtype if it is open: bf16 on GPUs, fp32 on the CPU. Afterwards nothing is open.
void resolve_device(ParsedConfig& parsed, Device::Kind kind);

// "learning rate 2e-05 (default for full training), cosine with 3 % warm-up, fp32 (default on a CPU)"
std::string describe_rate(const ParsedConfig& parsed);

// The default of overlap_comm: true if parameters are sharded, as in DeepSpeed.
bool overlaps_by_default(int stage);

// The default number of samples per step: about 32k tokens, but few enough that an epoch has 50 steps;
// `least` times a power of two.
int64_t default_batch(int64_t sequences, int64_t seq_len, int64_t least);

// train = micro × accumulation × ranks (those that see different sequences): any two give the third, train or
// micro alone means accumulation 1. If flags or the number of ranks do not fit the file, the samples per step
// stay and the accumulation adapts, with a warning. Throws when that is impossible or too little is given.
void resolve_batch(ParsedConfig& parsed, int64_t ranks);
// Is enough given for that, or left open ("auto", or no file)?
bool batch_can_be_resolved(const ParsedConfig& parsed);
// The same rule on values alone.
void resolve_batch(TrainConfig& config, int64_t ranks);

// "auto" sizes as HF Trainer sets them (bucket hidden², prefetch 0.9 hidden², persistence 10 hidden), and
// number_checkpoints as a distance between kept blocks.
void resolve_model(ParsedConfig& parsed, int64_t hidden_size, int64_t blocks);

// Sets the length of the run for schedules that need it and have none; call it when the length follows from
// epochs.
void resolve_steps(ParsedConfig& parsed, int64_t total_steps);

}  // namespace zeno::config
