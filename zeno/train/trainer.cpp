#include "zeno/train/trainer.h"

#include <chrono>
#include <cmath>
#include <ctime>
#include <memory>
#include <optional>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/base/quantity.h"
#include "zeno/config/config_resolve.h"
#include "zeno/config/engine_options.h"
#include "zeno/config/tuning.h"
#include "zeno/data/chat/chat_template.h"
#include "zeno/device/clock_limit.h"
#include "zeno/model/adapter_config.h"
#include "zeno/plan/auto_setting.h"
#include "zeno/report/page/report_memory.h"
#include "zeno/report/page/report_timeline.h"
#include "zeno/report/reporter.h"
#include "zeno/report/step_trace.h"
#include "zeno/train/agreement.h"
#include "zeno/train/build_progress.h"
#include "zeno/train/dataset_options.h"
#include "zeno/train/evaluation.h"
#include "zeno/train/first_sample.h"
#include "zeno/train/interrupt.h"
#include "zeno/train/run_engine.h"
#include "zeno/train/saving/checkpoint_saver.h"
#include "zeno/train/saving/model_saver.h"
#include "zeno/train/saving/output_folder.h"
#include "zeno/train/saving/output_room.h"
#include "zeno/train/saving/peer_snapshot.h"
#include "zeno/train/saving/resume.h"
#include "zeno/train/step_loop.h"

namespace zeno::train {
namespace {

// Adam and AdamW keep the same ones.
std::string moments_of(config::OptimizerKind kind) {
  switch (kind) {
    case config::OptimizerKind::sgd:
      return "SGD";
    case config::OptimizerKind::lion:
      return "Lion";
    case config::OptimizerKind::adamw:
    case config::OptimizerKind::adam:
      break;
  }
  return "Adam";
}

int64_t total_steps(const config::RunConfig& run, const data::Loader& loader) {
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
report::ReportData report_head(const config::ParsedConfig& parsed, const model::ModelConfig& model,
                               const RunEngine& run, int ranks) {
  const config::TrainConfig& config = parsed.config;
  report::ReportData data;
  data.title = fmt::format("{} on {}", Path(config.run.model).filename().string(),
                           Path(config.run.data.front()).filename().string());
  data.model = fmt::format("{}, {} parameters ({} trained), {} layers", model::name_of(model.arch),
                           format_count(run.engine->units().elements()),
                           format_count(run.engine->units().trainable_elements()), model.layers);
  data.machine = fmt::format("{} rank{} on {}, ZeRO stage {}, {}", ranks, ranks == 1 ? "" : "s",
                             run.engine->shape().device == Device::Kind::cuda ? "GPU" : "CPU",
                             config.zero.stage, name_of(config.precision.compute));
  data.made = time_now();
  data.settings = report::settings_of(parsed);
  data.memory_limit = run.memory_limit;
  return data;
}

std::string adapter_text(const RunEngine& run, const model::ModelConfig& model) {
  if (!run.tuning.lora) return "";
  return model::adapter_config_text(*run.tuning.lora, model,
                                    model::linear_modules(run.engine->units().params), "");
}

// The loop of a run and what surrounds its steps. Every rank has one; all take the same way through it.
class Trainer {
 public:
  Trainer(const config::ParsedConfig& parsed, const model::ModelConfig& model, const RunData& data,
          RunEngine& run, int64_t steps, const std::optional<ResumePoint>& resume, PeerFolder& memory,
          comm::World& world)
      : config_(parsed.config),
        data_(data),
        engine_(*run.engine),
        world_(world),
        steps_(steps),
        memory_limit_(run.memory_limit),
        adapter_(adapter_text(run, model)),
        stopping_(config_.eval),
        resumed_(resume ? restore_newest(*resume, run_state({}), engine_, world) : RunState{}),
        reporter_(world.rank() == 0
                      ? std::make_unique<report::Reporter>(parsed, steps, resumed_.loop.steps,
                                                           report_head(parsed, model, run, world.size()))
                      : nullptr),
        loop_(engine_, world, config_, data.train(), reporter_.get()),
        saver_(engine_, model, run.tuning, config_.run.model, world.rank()),
        peers_(config_.run, memory, engine_, world, resumed_.loop.steps) {
    summary_.adapter = run.tuning.lora.has_value();
    summary_.planned_step_s = run.planned_step_s;
    summary_.saved_step = resumed_.saved_step;
    evaluated_ = resumed_.evaluated;
    stopping_.restore(resumed_.stopping);
    loop_.restore(resumed_.loop);
    if (config_.run.save_every > 0) {
      checkpoints_.emplace(
          SaverOptions{.folder = checkpoints_of(config_.run),
                       .retention = {config_.run.keep_last, config_.run.keep_every},
                       .deadline = std::chrono::milliseconds(int64_t(config_.run.deadline_s * 1000))},
          engine_, world);
    }
    if (world.rank() == 0) check_output_room(config_.run, engine_, saver_.bytes());
  }

  report::RunSummary run() {
    const int64_t first = resumed_.loop.steps;
    data::Prefetcher batches(data_.train(), first);
    summary_.stopped_early = stopping_.give_up();  // a run that goes on may have ended already
    if (first >= steps_ || summary_.stopped_early)
      log_info("[resume] the run was complete after step {}: nothing is left to train", first);
    zero::Wishes agreed{.stop = summary_.stopped_early};
    for (int64_t step = first;; ++step) {
      if (!agreed.stop && step > evaluated_ && evaluates_after(step)) agreed.stop = !evaluate(step);
      if (step > first) save_state(step, agreed);
      if (step >= steps_ || agreed.stop) break;
      const bool busy = peers_.busy() || (checkpoints_ && checkpoints_->busy());
      agreed = loop_.run(batches, {.stop = Interrupt::requested(), .save = save_requested(), .busy = busy});
      summary_.interrupted = agreed.stop;
    }
    loop_.finish();
    return finish();
  }

 private:
  // Somebody has put a file of this name into the output folder, or has sent a signal. Rank 0 speaks for all:
  // launchers send the signal to every process, but not at the same time.
  Path save_request() const { return Path(config_.run.out) / "SAVE"; }
  bool save_requested() const {
    if (world_.rank() > 0) return false;
    const bool signal = Interrupt::take_save_request();
    if (signal && !checkpoints_) log_warning("[train] SIGUSR2: nothing is saved without --save-every");
    return checkpoints_ && (signal || sees_save_request());
  }
  // A disk that cannot say now is asked again after the next step.
  bool sees_save_request() const {
    if (ignores_save_file_) return false;
    try {
      return file_exists(save_request());
    } catch (const Error&) {
      return false;
    }
  }

  void drop_save_request() {
    try {
      remove_file(save_request());
    } catch (const Error& error) {
      log_warning("{}; requests through this file are ignored from now on", error.what());
      ignores_save_file_ = true;
    }
  }

  bool saves_after(int64_t step) const {
    return checkpoints_ && (step % config_.run.save_every == 0 || step == steps_);
  }

  RunState run_state(const LoopState& loop) const {
    return {.loop = loop,
            .stopping = stopping_.state(),
            .evaluated = evaluated_,
            .saved_step = summary_.saved_step,
            .train_batch = config_.batch.train_batch,
            .micro_batch = config_.batch.micro_batch,
            .seq_len = engine_.shape().seq,
            .seed = config_.run.seed,
            .sequences = data_.train().sequences(),
            .stage = config_.zero.stage,
            .order = std::string(config::text_of(config_.run.order)),
            .model = config_.run.model,
            .adapter = adapter_,
            .nf4 = engine_.policy().nf4_base,
            .optimizer = moments_of(config_.optimizer.kind)};
  }

  // What is due: a checkpoint on the disk, a snapshot in memory, or both from one copy of the state.
  void save_state(int64_t step, zero::Wishes agreed) {
    const bool disk = checkpoints_ && (agreed.save || agreed.stop || saves_after(step));
    const bool memory = stays_in_memory() ? peers_.on() : peers_.due(step, agreed.busy && !disk);
    if (!disk && !memory) return;
    loop_.finish();
    const auto begin = std::chrono::steady_clock::now();
    peers_.wait();
    const std::string run = to_json(run_state(loop_.state()));
    const bool taken = disk && save_checkpoint(step, run);
    if (memory) peers_.start(step, run, taken);
    loop_.add_save(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }

  // An interrupted run that writes no checkpoints leaves its state there.
  bool stays_in_memory() const { return summary_.interrupted && !checkpoints_; }

  bool save_checkpoint(int64_t step, const std::string& run) {
    const bool has_best = config_.eval.keep_best && stopping_.best();
    const int64_t best = has_best ? stopping_.best()->step : -1;
    const bool started = checkpoints_->start(step, run, best);
    if (world_.rank() == 0 && sees_save_request()) drop_save_request();
    if (started) {
      note(
          step, report::ReportEvent::Kind::checkpoint,
          fmt::format("writing the checkpoint of step {} to {}", step, checkpoints_of(config_.run).string()));
    }
    return started;
  }

  bool evaluates_after(int64_t step) const {
    return data_.evaluation() != nullptr &&
           evaluation_due(config_.eval, step, steps_, data_.train().steps_per_epoch());
  }

  // False: the run ends here.
  bool evaluate(int64_t step) {
    loop_.finish();
    std::optional<report::EvalRecord> record = train::evaluate(engine_, *data_.evaluation());
    summary_.interrupted = !record;
    if (!record) return false;
    evaluated_ = step;
    record->step = step;
    record->epoch = data_.train().epochs_after(step);
    summary_.last_eval = record;
    if (reporter_) reporter_->evaluation(*record);
    // What was there before the first step is no result of the run.
    const bool best = step > 0 && stopping_.add({step, record->loss, record->token_accuracy});
    if (best && config_.eval.keep_best) save_best(step);
    summary_.stopped_early = stopping_.give_up() && step < steps_;
    return !summary_.stopped_early;
  }

  // A disk that is full now may not be later: training goes on.
  void save_best(int64_t step) {
    const std::string problem = try_save(config_.run.out, step);
    if (!problem.empty() && world_.rank() == 0)
      log_warning("{}; the best model so far, of step {}, was not saved; training continues", problem, step);
    if (problem.empty())
      note(step, report::ReportEvent::Kind::checkpoint,
           fmt::format("best so far: saved in {}", config_.run.out));
  }

  void save(const Path& folder, int64_t step) {
    const std::string problem = try_save(folder, step);
    require(problem.empty(), ErrorKind::io, "{}", problem);
  }

  // What has gone wrong with the disk, the same on all ranks; empty: nothing.
  std::string try_save(const Path& folder, int64_t step) {
    std::string problem = saver_.save(folder);
    try {
      if (world_.rank() == 0 && problem.empty()) write_template(folder);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::io) throw;
      problem = error.what();
    }
    problem = comm::first_problem(world_, problem, "saving the model");
    if (problem.empty() && folder == config_.run.out) summary_.saved_step = step;
    return problem;
  }

  // A template that is not the folder's own goes along: the result is to be asked as it was trained.
  void write_template(const Path& folder) const {
    if (config_.data.chat_template.empty()) return;
    const data::ChatTemplate used = data::ChatTemplate::open(config_.run.model, config_.data.chat_template);
    replace_file(folder / "chat_template.jinja", used.source());
  }

  void note(int64_t step, report::ReportEvent::Kind kind, const std::string& text) {
    if (reporter_) reporter_->note(step, kind, text);
  }

  // With --keep-best the folder holds the best already; what an interrupted run came to is kept beside it.
  void save_result() {
    const int64_t step = loop_.steps();
    const bool has_best = config_.eval.keep_best && summary_.saved_step > 0;
    if (!has_best) return save(config_.run.out, step);
    const std::optional<report::Evaluation>& best = stopping_.best();
    if (best && best->step != summary_.saved_step && world_.rank() == 0)
      log_warning("[train] {} holds the model of step {}: the best, of step {}, could not be saved",
                  config_.run.out, summary_.saved_step, best->step);
    if (!summary_.interrupted || summary_.saved_step == step) return;
    summary_.last = (Path(config_.run.out) / "last").string();
    save(summary_.last, step);
  }

  report::RunSummary finish() {
    loop_.add_to(summary_);
    summary_.out = config_.run.out;
    summary_.best = stopping_.best();
    if (summary_.interrupted) {
      note(summary_.steps, report::ReportEvent::Kind::note,
           fmt::format("interrupted after step {} of {}: saving", summary_.steps, steps_));
    } else if (summary_.stopped_early) {
      note(summary_.steps, report::ReportEvent::Kind::early_stop,
           fmt::format("no better evaluation in {} tries: stopping", config_.eval.early_stopping));
    }
    // Whoever asked the run to stop may not wait long: the checkpoint goes first.
    const std::string unsaved = checkpoints_ ? checkpoints_->finish() : "";
    summary_.weights_hash = engine_.weights_hash();
    save_result();
    summary_.advice = world_.exchange(loop_.advice(memory_limit_), "advice of rank 0").front();
    std::vector<report::RankMemory> memory;
    for (const std::string& bytes :
         world_.exchange(report::pack_memory(engine_.ledger()), "memory of all ranks"))
      memory.push_back(report::unpack_memory(bytes));
    if (reporter_) {
      reporter_->finish(summary_, std::move(memory),
                        report::timeline_of(engine_.program(), engine_.units(), engine_.executor().times()));
    }
    peers_.finish(stays_in_memory() || !unsaved.empty());
    // Last: whatever becomes of these, the model is saved.
    require(unsaved.empty(), ErrorKind::io, "{}; the model is in {}", unsaved, config_.run.out);
    if (!config_.run.trace.empty()) report::write_step_trace(config_.run.trace, engine_, world_);
    if (world_.rank() == 0 && !config_.run.done_file.empty()) replace_file(config_.run.done_file, "");
    return summary_;
  }

  const config::TrainConfig& config_;
  const RunData& data_;
  zero::Engine& engine_;
  comm::World& world_;
  int64_t steps_;
  size_t memory_limit_;     // of a rank's device
  std::string adapter_;     // what it is like, as text; empty: the whole model is trained
  int64_t evaluated_ = -1;  // the last step that was
  bool ignores_save_file_ = false;
  EarlyStopping stopping_;
  report::RunSummary summary_;
  RunState resumed_;  // all zeros in a run from the start
  std::unique_ptr<report::Reporter> reporter_;
  StepLoop loop_;
  ModelSaver saver_;
  std::optional<CheckpointSaver> checkpoints_;
  PeerSaver peers_;
};

// What can be known to be wrong before the data is read, which may take long.
void check_run(const config::TrainConfig& config, const model::ModelConfig& model, int64_t seq,
               int local_rank) {
  const config::RunConfig& run = config.run;
  model::build_layers(model, seq, config::tuning_of(config));
  const bool gpu = config::device_of(run, local_rank).kind == Device::Kind::cuda;
  require(gpu || !run.limit_gpu_clock, ErrorKind::usage,
          "[train] --limit-gpu-clock: got a CPU, expected a GPU; leave it out");
  require(gpu || config.precision.matmul != config::MatmulDtype::fp8, ErrorKind::usage,
          "[train] --matmul-dtype fp8: got a CPU, expected a GPU; use --device cuda, or leave it out");
}

}  // namespace

report::RunSummary train_rank(config::ParsedConfig parsed, comm::World& world,
                              std::unique_ptr<const FolderLock>& lock) {
  set_log_rank(world.rank());
  require(!parsed.config.run.model.empty(), ErrorKind::usage, "[train] no model: give --model DIR");
  require(!parsed.config.run.out.empty(), ErrorKind::usage, "[train] no output folder: give --out DIR");
  agree_on_inputs(parsed, world);
  lock_output_folder(parsed.config.run, world, lock);  // before any look at what is there
  config::resolve_device(parsed, config::device_of(parsed.config.run, world.local_rank()).kind);
  config::check_disk_folders(parsed);
  const model::ModelConfig model = model::load_config(parsed.config.run.model);
  const size_t told = parsed.warnings.size();  // by the command line
  PeerFolder memory(parsed.config.run, world);
  zero::Policy policy;
  zero::apply_stage(policy, parsed.config.zero.stage);
  const bool replicated = policy.optimizer.empty();
  const std::optional<ResumePoint> resume =
      find_resume_point(parsed.config.run, memory.find(replicated), world);
  if (resume) {
    adopt_batch(parsed, resume->state, world.size());
    adopt_setting(parsed, resume->state);
  }
  config::resolve_model(parsed, model.hidden, model.layers);
  const config::TrainConfig& config = parsed.config;
  const config::RunConfig& run = config.run;
  const int64_t seq = config::sequence_length(run, model.max_positions);
  if (!run.choose) config::resolve_batch(parsed, world.size());
  check_output_folder(config, world, lock);
  check_run(config, model, seq, world.local_rank());
  // Before any work: a run that cannot be saved should not start.
  if (world.rank() == 0 && !run.trace.empty()) File::create(run.trace);
  if (run.save_every > 0) agree_on_output(run.out, world);
  std::optional<ClockLimit> clock;
  if (run.limit_gpu_clock) clock.emplace(pci_address(config::device_of(run, world.local_rank())));
  RunData data = open_run_data(config, model.vocab, seq, world, build_progress(world.rank()));
  if (run.choose) {
    plan::choose_setting(parsed, model, seq, data.train_sequences(), world);
    config::resolve_batch(parsed, world.size());
  }
  data.deal(config, world);
  if (world.rank() == 0 && !resume) show_first_sample(config, data, seq);
  const int64_t steps = total_steps(run, data.train());
  config::resolve_steps(parsed, steps);
  for (size_t i = told; world.rank() == 0 && i < parsed.warnings.size(); ++i)
    log_warning("{}", parsed.warnings[i]);
  RunEngine engine = make_engine(config, model, seq, world);
  log_info(
      "{} parameters, {} trained; {} rank{}, stage {}; {} steps of {}×{}×{} tokens per rank, {:.2f} epochs; "
      "memory per rank:\n"
      "{}",
      format_count(engine.engine->units().elements()),
      format_count(engine.engine->units().trainable_elements()), world.size(), world.size() == 1 ? "" : "s",
      config.zero.stage, steps, config.batch.grad_accum, config.batch.micro_batch, seq,
      data.train().epochs_after(steps), engine.engine->ledger().report());
  Trainer trainer(parsed, model, data, engine, steps, resume, memory, world);
  if (clock) clock->begin();
  return trainer.run();
}

}  // namespace zeno::train
