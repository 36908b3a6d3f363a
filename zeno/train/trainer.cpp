#include "zeno/train/trainer.h"

#include <cmath>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/data/chat/chat_template.h"
#include "zeno/train/build_progress.h"
#include "zeno/train/checkpoint_saver.h"
#include "zeno/train/config_resolve.h"
#include "zeno/train/dataset_options.h"
#include "zeno/train/evaluation.h"
#include "zeno/train/interrupt.h"
#include "zeno/train/model_saver.h"
#include "zeno/train/policy.h"
#include "zeno/train/report_memory.h"
#include "zeno/train/report_timeline.h"
#include "zeno/train/reporter.h"
#include "zeno/train/resume.h"
#include "zeno/train/run_engine.h"
#include "zeno/train/step_loop.h"
#include "zeno/train/step_trace.h"
#include "zeno/train/tuning.h"

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
  data.model = fmt::format("{}, {} parameters ({} trained), {} layers", model::name_of(model.arch),
                           format_count(run.engine->units().elements()),
                           format_count(run.engine->units().trainable_elements()), model.layers);
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
          int64_t steps, const std::optional<ResumePoint>& resume, comm::World& world)
      : config_(parsed.config),
        data_(data),
        engine_(*run.engine),
        world_(world),
        steps_(steps),
        stopping_(config_.eval),
        resumed_(resume ? restore_newest(*resume, run_state({}), engine_, world) : RunState{}),
        reporter_(world.rank() == 0
                      ? std::make_unique<Reporter>(parsed, steps, resumed_.loop.steps,
                                                   report_head(parsed, model, run, world.size()))
                      : nullptr),
        loop_(engine_, world, config_, data.train(), reporter_.get()),
        saver_(engine_, model, run.tuning, config_.run.model, world.rank()) {
    summary_.adapter = run.tuning.lora.has_value();
    summary_.saved_step = resumed_.saved_step;
    stopping_.restore(resumed_.stopping);
    loop_.restore(resumed_.loop);
    if (config_.run.save_every > 0) {
      checkpoints_.emplace(
          SaverOptions{.folder = checkpoints_of(config_.run),
                       .retention = {config_.run.keep_last, config_.run.keep_every},
                       .deadline = std::chrono::milliseconds(int64_t(config_.run.deadline_s * 1000))},
          engine_, world);
    }
  }

  RunSummary run() {
    const int64_t first = resumed_.loop.steps;
    data::Prefetcher batches(data_.train(), first);
    zero::Wishes agreed;
    for (int64_t step = first; !agreed.stop; ++step) {
      // What was due after the first step was done before the checkpoint that the run goes on from.
      if ((step > first || first == 0) && evaluates_after(step)) agreed.stop = !evaluate(step);
      if (step > first && (agreed.save || saves_after(step))) save_checkpoint(step);
      if (step >= steps_ || agreed.stop) break;
      agreed = loop_.run(batches, {.stop = Interrupt::requested(), .save = save_requested()});
      summary_.interrupted = agreed.stop;
    }
    loop_.finish();
    if (summary_.interrupted && loop_.steps() > first) save_checkpoint(loop_.steps());
    return finish();
  }

 private:
  // Somebody has put a file of this name into the output folder.
  Path save_request() const { return Path(config_.run.out) / "SAVE"; }
  bool save_requested() const { return world_.rank() == 0 && checkpoints_ && file_exists(save_request()); }

  bool saves_after(int64_t step) const {
    return checkpoints_ && (step % config_.run.save_every == 0 || step == steps_);
  }

  RunState run_state(const LoopState& loop) const {
    return {.loop = loop,
            .stopping = stopping_.state(),
            .saved_step = summary_.saved_step,
            .train_batch = config_.batch.train_batch,
            .micro_batch = config_.batch.micro_batch,
            .seq_len = engine_.shape().seq,
            .seed = config_.run.seed,
            .sequences = data_.train().sequences(),
            .model = config_.run.model};
  }

  void save_checkpoint(int64_t step) {
    if (!checkpoints_) return;
    loop_.finish();
    checkpoints_->start(step, to_json(run_state(loop_.state())));
    if (world_.rank() == 0) remove_file(save_request());
    note(step, ReportEvent::Kind::checkpoint,
         fmt::format("checkpoint of step {} in {}", step, checkpoints_of(config_.run).string()));
  }

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
    // A template that is not the folder's own goes along: the result is to be asked as it was trained.
    if (world_.rank() == 0 && !config_.data.chat_template.empty()) {
      const data::ChatTemplate used = data::ChatTemplate::open(config_.run.model, config_.data.chat_template);
      replace_file(folder / "chat_template.jinja", used.source());
    }
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
    summary_.weights_hash = engine_.weights_hash();
    save_result();
    if (checkpoints_) checkpoints_->finish();
    std::vector<RankMemory> memory;
    for (const std::string& bytes : world_.exchange(pack_memory(engine_.ledger())))
      memory.push_back(unpack_memory(bytes));
    if (reporter_) {
      reporter_->finish(summary_, std::move(memory),
                        timeline_of(engine_.program(), engine_.units(), engine_.executor().times()));
    }
    // Last: whatever becomes of it, the model is saved.
    if (!config_.run.trace.empty()) write_step_trace(config_.run.trace, engine_, world_);
    return summary_;
  }

  const TrainConfig& config_;
  const RunData& data_;
  zero::Engine& engine_;
  comm::World& world_;
  int64_t steps_;
  EarlyStopping stopping_;
  RunSummary summary_;
  RunState resumed_;  // all zeros in a run from the start
  std::unique_ptr<Reporter> reporter_;
  StepLoop loop_;
  ModelSaver saver_;
  std::optional<CheckpointSaver> checkpoints_;
};

// What can be known to be wrong before the data is read, which may take long.
void check_run(const TrainConfig& config, const model::ModelConfig& model, int64_t seq, int local_rank) {
  const RunConfig& run = config.run;
  require(!run.out.empty(), ErrorKind::usage, "[train] no output folder: give --out DIR");
  std::error_code ignored;
  require(!std::filesystem::equivalent(run.model, run.out, ignored), ErrorKind::usage,
          "[train] --out {}: is the model's own folder, which the result would replace; choose another",
          run.out);
  const model::Tuning tuning = tuning_of(config);
  const char* other = tuning.lora ? "config.json" : "adapter_config.json";
  require(!file_exists(Path(run.out) / other), ErrorKind::usage,
          "[train] --out {}: holds {} and this run would add {}; choose another folder", run.out,
          tuning.lora ? "a whole model" : "an adapter", tuning.lora ? "an adapter" : "a whole model");
  model::build_layers(model, seq, tuning);
  device_of(run, local_rank);
}

}  // namespace

RunSummary train_rank(ParsedConfig parsed, comm::World& world) {
  set_log_rank(world.rank());
  require(!parsed.config.run.model.empty(), ErrorKind::usage, "[train] no model: give --model DIR");
  const model::ModelConfig model = model::load_config(parsed.config.run.model);
  const std::optional<ResumePoint> resume = find_resume_point(parsed.config.run, world);
  if (resume) adopt_batch(parsed, resume->state, world.size());
  resolve_batch(parsed, world.size());
  resolve_model(parsed, model.hidden, model.layers);
  const TrainConfig& config = parsed.config;
  const RunConfig& run = config.run;
  const int64_t seq = sequence_length(run, model.max_positions);
  check_run(config, model, seq, world.local_rank());
  if (world.rank() == 0)
    make_folders(run.out);  // before any work: a run that cannot be saved should not start
  const RunData data = open_run_data(config, model.vocab, seq, world, build_progress(world.rank()));
  const int64_t steps = total_steps(run, data.train());
  resolve_steps(parsed, steps);
  RunEngine engine = make_engine(config, model, seq, world);
  log_info(
      "{} parameters, {} trained; {} ranks, stage {}; {} steps of {}×{}×{} tokens per rank, {:.2f} epochs; "
      "memory per rank:\n{}",
      format_count(engine.engine->units().elements()),
      format_count(engine.engine->units().trainable_elements()), world.size(), config.zero.stage, steps,
      config.batch.grad_accum, config.batch.micro_batch, seq, data.train().epochs_after(steps),
      engine.engine->ledger().report());
  return Trainer(parsed, model, data, engine, steps, resume, world).run();
}

}  // namespace zeno::train
