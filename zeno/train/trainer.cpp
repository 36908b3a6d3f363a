#include "zeno/train/trainer.h"

#include <cmath>
#include <ctime>
#include <memory>
#include <optional>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/train/config_resolve.h"
#include "zeno/train/dataset_options.h"
#include "zeno/train/evaluation.h"
#include "zeno/train/interrupt.h"
#include "zeno/train/model_saver.h"
#include "zeno/train/policy.h"
#include "zeno/train/report_memory.h"
#include "zeno/train/report_timeline.h"
#include "zeno/train/reporter.h"
#include "zeno/train/run_engine.h"
#include "zeno/train/step_loop.h"
#include "zeno/train/step_trace.h"

namespace zeno::train {
namespace {

int64_t total_steps(const RunConfig& run, const data::Loader& loader) {
  if (run.steps > 0) return run.steps;
  return std::max<int64_t>(1, std::llround(run.epochs * double(loader.steps_per_epoch())));
}

std::string time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[32];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &local)};
}

// What the report says before the first step.
ReportData report_head(const ParsedConfig& parsed, const model::ModelConfig& model, const RunEngine& run,
                       int ranks) {
  const TrainConfig& config = parsed.config;
  ReportData data;
  data.title = fmt::format("{} on {}", Path(config.run.model).filename().string(),
                           Path(config.run.data.front()).filename().string());
  data.model =
      fmt::format("{}, {} parameters ({} trained), {} layers", model::name_of(model.arch),
                  run.engine->units().elements(), run.engine->units().trainable_elements(), model.layers);
  data.machine = fmt::format("{} ranks on {}, ZeRO stage {}, {}", ranks,
                             run.engine->shape().device == Device::Kind::cuda ? "GPU" : "CPU",
                             config.zero.stage, name_of(config.precision.compute));
  data.made = time_now();
  data.settings = settings_of(parsed);
  data.memory_limit = run.memory_limit;
  return data;
}

// The loop of a run and what surrounds its steps. Every rank has one; all take the same way through it.
class Trainer {
 public:
  Trainer(const ParsedConfig& parsed, const model::ModelConfig& model, const RunData& data, RunEngine& run,
          int64_t steps, comm::World& world)
      : config_(parsed.config),
        data_(data),
        engine_(*run.engine),
        world_(world),
        steps_(steps),
        reporter_(world.rank() == 0 ? std::make_unique<Reporter>(
                                          parsed, steps, report_head(parsed, model, run, world.size()))
                                    : nullptr),
        loop_(engine_, world, config_, data.train(), reporter_.get()),
        saver_(engine_, model, run.tuning, config_.run.model, world.rank()),
        stopping_(config_.eval) {
    summary_.adapter = run.tuning.lora.has_value();
  }

  RunSummary run() {
    data::Prefetcher batches(data_.train(), 0);
    bool stop = false;
    for (int64_t step = 0; !stop; ++step) {
      if (evaluates_after(step)) stop = !evaluate(step);
      if (step == steps_ || stop) break;
      stop = summary_.interrupted = loop_.run(batches, Interrupt::requested());
    }
    loop_.finish();
    return finish();
  }

 private:
  bool evaluates_after(int64_t step) const {
    return data_.evaluation() != nullptr &&
           evaluation_due(config_.eval, step, steps_, data_.train().steps_per_epoch());
  }

  // False: the run ends here.
  bool evaluate(int64_t step) {
    loop_.finish();
    std::optional<EvalRecord> record = train::evaluate(engine_, *data_.evaluation());
    summary_.interrupted = !record;
    if (!record) return false;
    record->step = step;
    record->epoch = data_.train().epochs_after(step);
    summary_.last_eval = record;
    if (reporter_) reporter_->evaluation(*record);
    const bool best = stopping_.add({step, record->loss, record->token_accuracy});
    if (best && config_.eval.keep_best && step > 0) {
      save(config_.run.out, step);
      note(step, ReportEvent::Kind::checkpoint, fmt::format("the best so far: saved in {}", config_.run.out));
    }
    summary_.stopped_early = stopping_.give_up() && step < steps_;
    return !summary_.stopped_early;
  }

  void save(const Path& folder, int64_t step) {
    saver_.save(folder);
    if (folder == config_.run.out) summary_.saved_step = step;
  }

  void note(int64_t step, ReportEvent::Kind kind, const std::string& text) {
    if (reporter_) reporter_->note(step, kind, text);
  }

  // With --keep-best the folder holds the best already; what an interrupted run came to is kept beside it.
  void save_result() {
    const int64_t step = loop_.steps();
    const bool has_best = config_.eval.keep_best && summary_.saved_step > 0;
    if (!has_best) return save(config_.run.out, step);
    if (!summary_.interrupted || summary_.saved_step == step) return;
    summary_.last = (Path(config_.run.out) / "last").string();
    save(summary_.last, step);
  }

  RunSummary finish() {
    loop_.add_to(summary_);
    summary_.out = config_.run.out;
    summary_.best = stopping_.best();
    if (summary_.interrupted) {
      note(summary_.steps, ReportEvent::Kind::note,
           fmt::format("interrupted after step {} of {}: saving", summary_.steps, steps_));
    } else if (summary_.stopped_early) {
      note(summary_.steps, ReportEvent::Kind::early_stop,
           fmt::format("no better evaluation in {} tries: stopping", config_.eval.early_stopping));
    }
    if (!config_.run.trace.empty()) write_step_trace(config_.run.trace, engine_, world_);
    summary_.weights_hash = engine_.weights_hash();
    save_result();
    std::vector<RankMemory> memory;
    for (const std::string& bytes : world_.exchange(pack_memory(engine_.ledger())))
      memory.push_back(unpack_memory(bytes));
    if (reporter_) {
      reporter_->finish(summary_, std::move(memory),
                        timeline_of(engine_.program(), engine_.units(), engine_.executor().times()));
    }
    return summary_;
  }

  const TrainConfig& config_;
  const RunData& data_;
  zero::Engine& engine_;
  comm::World& world_;
  int64_t steps_;
  std::unique_ptr<Reporter> reporter_;
  StepLoop loop_;
  ModelSaver saver_;
  EarlyStopping stopping_;
  RunSummary summary_;
};

}  // namespace

RunSummary train_rank(ParsedConfig parsed, comm::World& world) {
  set_log_rank(world.rank());
  const model::ModelConfig model = model::load_config(parsed.config.run.model);
  resolve_batch(parsed, world.size());
  resolve_model(parsed, model.hidden, model.layers);
  const TrainConfig& config = parsed.config;
  const RunConfig& run = config.run;
  require(!run.out.empty(), ErrorKind::usage, "[train] no output folder: give --out DIR");
  if (world.rank() == 0)
    make_folders(run.out);  // before any work: a run that cannot be saved should not start
  const int64_t seq = sequence_length(run, model.max_positions);
  const RunData data = open_run_data(config, model.vocab, seq, world);
  const int64_t steps = total_steps(run, data.train());
  resolve_steps(parsed, steps);
  RunEngine engine = make_engine(config, model, seq, world);
  log_info(
      "{} parameters, {} trained; {} ranks, stage {}; {} steps of {}×{}×{} tokens per rank, {:.2f} epochs; "
      "memory per rank:\n{}",
      engine.engine->units().elements(), engine.engine->units().trainable_elements(), world.size(),
      config.zero.stage, steps, config.batch.grad_accum, config.batch.micro_batch, seq,
      data.train().epochs_after(steps), engine.engine->ledger().report());
  return Trainer(parsed, model, data, engine, steps, world).run();
}

}  // namespace zeno::train
