#include "zeno/train/eval_run.h"

#include <mutex>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/config/config_resolve.h"
#include "zeno/config/engine_options.h"
#include "zeno/train/agreement.h"
#include "zeno/train/build_progress.h"
#include "zeno/train/dataset_options.h"
#include "zeno/train/evaluation.h"
#include "zeno/train/launch.h"
#include "zeno/train/run_engine.h"

namespace zeno::train {
namespace {

report::EvalRecord evaluate_rank(config::ParsedConfig parsed, comm::World& world) {
  set_log_rank(world.rank());
  config::TrainConfig& config = parsed.config;
  require(!config.run.model.empty(), ErrorKind::usage, "[eval] no model: give --model DIR");
  agree_on_inputs(parsed, world);
  const model::ModelConfig model = model::load_config(config.run.model);
  config.data.shuffle = false;
  config.data.neftune_alpha = 0;
  if (config.run.data.empty()) config.run.data = config.eval.data;
  config.eval = {};
  config::resolve_device(parsed, config::device_of(config.run, world.local_rank()).kind);
  if (config.batch.micro_batch == 0 && config.batch.train_batch == 0) config.batch.micro_batch = 4;
  config::resolve_batch(parsed, config::batch_ranks(config, world.size()));
  config::resolve_model(parsed, model.hidden, model.layers);
  const int64_t seq = config::sequence_length(config.run, model.max_positions);
  RunData data = open_run_data(config, model.vocab, seq, world, build_progress(world.rank()));
  data.deal(config, world);
  const RunEngine run = make_engine(config, model, seq, world, false);
  const std::optional<report::EvalRecord> record = evaluate(*run.engine, data.train());
  ensure(record.has_value(), "[eval] the evaluation was stopped, but nothing asked it to stop");
  return *record;
}

}  // namespace

report::EvalRecord evaluate_model(config::ParsedConfig parsed) {
  set_folders(parsed.config.run);
  report::EvalRecord record;
  std::mutex mutex;
  run_ranks(parsed.config.run, false, [&](comm::World& world) {
    const report::EvalRecord mine = evaluate_rank(parsed, world);
    const std::scoped_lock lock(mutex);  // all ranks return the same, except for the time
    record = mine;
  });
  return record;
}

}  // namespace zeno::train
