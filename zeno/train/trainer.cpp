#include "zeno/train/trainer.h"

#include <chrono>
#include <ctime>
#include <mutex>
#include <utility>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/base/quantity.h"
#include "zeno/data/chat/chat_template.h"
#include "zeno/model/adapter_config.h"
#include "zeno/report/page/report_memory.h"
#include "zeno/report/page/report_timeline.h"
#include "zeno/report/step_trace.h"
#include "zeno/train/evaluation.h"
#include "zeno/train/interrupt.h"
#include "zeno/train/launch.h"
#include "zeno/train/saving/output_room.h"

namespace zeno::train {
namespace {

// Adam and AdamW have the same moments.
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

std::string time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[32];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &local)};
}

// The contents of the report before the first step.
report::ReportData report_head(const RunSetup& setup, const RunEngine& run, int ranks) {
  const config::TrainConfig& config = setup.parsed.config;
  report::ReportData data;
  data.title = fmt::format("{} on {}", Path(config.run.model).filename().string(),
                           Path(config.run.data.front()).filename().string());
  data.model = fmt::format("{}, {} parameters ({} trained), {} layers", model::name_of(setup.model.arch),
                           format_count(run.engine->units().elements()),
                           format_count(run.engine->units().trainable_elements()), setup.model.layers);
  data.machine = fmt::format("{} rank{} on {}, ZeRO stage {}, {}", ranks, ranks == 1 ? "" : "s",
                             run.engine->shape().device == Device::Kind::cuda ? "GPU" : "CPU",
                             config.zero.stage, name_of(config.precision.compute));
  data.made = time_now();
  data.settings = report::settings_of(setup.parsed);
  data.memory_limit = run.memory_limit;
  return data;
}

std::string adapter_text(const RunEngine& run, const model::ModelConfig& model) {
  if (!run.tuning.lora) return "";
  return model::adapter_config_text(*run.tuning.lora, model,
                                    model::linear_modules(run.engine->units().params), "");
}

// Loads the weights and allocates all memory.
RunEngine engine_of(const RunSetup& setup, comm::World& world) {
  const config::TrainConfig& config = setup.parsed.config;
  RunEngine run = make_engine(config, setup.model, setup.seq_len, world);
  log_info(
      "{} parameters, {} trained; {} rank{}, stage {}; {} steps of {}×{}×{} tokens per rank, {:.2f} epochs; "
      "memory per rank:\n{}",
      format_count(run.engine->units().elements()), format_count(run.engine->units().trainable_elements()),
      world.size(), world.size() == 1 ? "" : "s", config.zero.stage, setup.steps, config.batch.grad_accum,
      config.batch.micro_batch, setup.seq_len, setup.data.train().epochs_after(setup.steps),
      run.engine->ledger().report());
  return run;
}

}  // namespace

Trainer::Trainer(config::ParsedConfig config, comm::World& world, std::unique_ptr<const FolderLock>& lock)
    : world_(world),
      setup_(std::move(config), world, lock),
      run_(engine_of(setup_, world)),
      adapter_(adapter_text(run_, setup_.model)),
      stopping_(config_.eval),
      resumed_(setup_.resume ? restore_newest(*setup_.resume, run_state({}), engine_, world) : RunState{}),
      step_(resumed_.loop.steps),
      reporter_(world.rank() == 0
                    ? std::make_unique<report::Reporter>(setup_.parsed, setup_.steps, step_,
                                                         report_head(setup_, run_, world.size()))
                    : nullptr),
      loop_(engine_, world, config_, setup_.data.train(), reporter_.get()),
      saver_(engine_, setup_.model, run_.tuning, config_.run.model, world.rank()),
      peers_(config_.run, setup_.peers, engine_, world, step_),
      batches_(setup_.data.train(), step_) {
  summary_.adapter = run_.tuning.lora.has_value();
  summary_.planned_step_s = run_.planned_step_s;
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
  agreed_.stop = summary_.stopped_early = stopping_.give_up();  // a resumed run may have ended early already
  if (done())
    log_info("[resume] the run was complete after step {}: nothing is left to train", resumed_.loop.steps);
  if (setup_.clock) setup_.clock->begin();
}

void Trainer::step() {
  ensure(!done(), "[train] a step after the last one, {} of {}", step_, setup_.steps);
  const bool busy = peers_.busy() || (checkpoints_ && checkpoints_->busy());
  agreed_ = loop_.run(batches_, {.stop = Interrupt::requested(), .save = save_requested(), .busy = busy});
  ++step_;
  summary_.interrupted = agreed_.stop;
}

bool Trainer::evaluates_after(int64_t step) const {
  return setup_.data.evaluation() != nullptr &&
         evaluation_due(config_.eval, step, setup_.steps, setup_.data.train().steps_per_epoch());
}

void Trainer::evaluate_if_due() {
  if (!agreed_.stop && step_ > evaluated_ && evaluates_after(step_)) evaluate();
}

std::optional<report::EvalRecord> Trainer::evaluate() {
  const data::Loader* held_out = setup_.data.evaluation();
  require(held_out != nullptr, ErrorKind::usage,
          "[train] no evaluation data: give --eval-data FILE, or --eval-split to hold out a part of --data");
  loop_.finish();
  std::optional<report::EvalRecord> record = train::evaluate(engine_, *held_out);
  if (!record) {
    agreed_.stop = summary_.interrupted = true;
    return record;
  }
  evaluated_ = step_;
  record->step = step_;
  record->epoch = setup_.data.train().epochs_after(step_);
  summary_.last_eval = record;
  if (reporter_) reporter_->evaluation(*record);
  // The model before the first step is not a result of the run.
  const bool best = step_ > 0 && stopping_.add({step_, record->loss, record->token_accuracy});
  if (best && config_.eval.keep_best) save_best();
  summary_.stopped_early = stopping_.give_up() && step_ < setup_.steps;
  agreed_.stop |= summary_.stopped_early;
  return record;
}

// Whether the file SAVE is in the output folder or a signal was sent. Rank 0 decides for all: launchers send
// the signal to every process, but not at the same time.
bool Trainer::save_requested() const {
  if (world_.rank() > 0) return false;
  const bool signal = Interrupt::take_save_request();
  if (signal && !checkpoints_) log_warning("[train] SIGUSR2: nothing is saved without --save-every");
  return checkpoints_ && (signal || sees_save_request());
}

// If the disk gives an error, it is checked again after the next step.
bool Trainer::sees_save_request() const {
  if (ignores_save_file_) return false;
  try {
    return file_exists(save_request());
  } catch (const Error&) {
    return false;
  }
}

void Trainer::drop_save_request() {
  try {
    remove_file(save_request());
  } catch (const Error& error) {
    log_warning("{}; requests through this file are ignored from now on", error.what());
    ignores_save_file_ = true;
  }
}

bool Trainer::saves_after(int64_t step) const {
  return checkpoints_ && (step % config_.run.save_every == 0 || step == setup_.steps);
}

RunState Trainer::run_state(const LoopState& loop) const {
  return {.loop = loop,
          .stopping = stopping_.state(),
          .evaluated = evaluated_,
          .saved_step = summary_.saved_step,
          .train_batch = config_.batch.train_batch,
          .micro_batch = config_.batch.micro_batch,
          .seq_len = engine_.shape().whole_seq(),
          .seed = config_.run.seed,
          .sequences = setup_.data.train().sequences(),
          .stage = config_.zero.stage,
          .order = std::string(config::text_of(config_.run.order)),
          .model = config_.run.model,
          .adapter = adapter_,
          .nf4 = engine_.policy().nf4_base,
          .optimizer = moments_of(config_.optimizer.kind)};
}

// An interrupted run that writes no checkpoints leaves its state in memory.
bool Trainer::stays_in_memory() const { return summary_.interrupted && !checkpoints_; }

void Trainer::save_if_due() {
  const bool disk = checkpoints_ && (agreed_.save || agreed_.stop || saves_after(step_));
  const bool memory = stays_in_memory() ? peers_.on() : peers_.due(step_, agreed_.busy && !disk);
  take_state(disk, memory);
}

void Trainer::save() {
  require(
      checkpoints_.has_value(), ErrorKind::usage,
      "[train] this run cannot write checkpoints: give --save-every N, a large one to save by hand alone");
  take_state(true, false);
}

// Saves a checkpoint to disk, a snapshot to memory, or both from one copy of the state.
void Trainer::take_state(bool disk, bool memory) {
  if (!disk && !memory) return;
  loop_.finish();
  const auto begin = std::chrono::steady_clock::now();
  peers_.wait();
  const std::string run = to_json(run_state(loop_.state()));
  const bool taken = disk && save_checkpoint(run);
  if (memory) peers_.start(step_, run, taken);
  loop_.add_save(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
}

bool Trainer::save_checkpoint(const std::string& run) {
  const bool has_best = config_.eval.keep_best && stopping_.best();
  const int64_t best = has_best ? stopping_.best()->step : -1;
  const bool started = checkpoints_->start(step_, run, best);
  if (world_.rank() == 0 && sees_save_request()) drop_save_request();
  if (started) {
    note(report::ReportEvent::Kind::checkpoint,
         fmt::format("writing the checkpoint of step {} to {}", step_, checkpoints_of(config_.run).string()));
  }
  return started;
}

// Training continues if this fails: a disk that is full now may have room later.
void Trainer::save_best() {
  const std::string problem = try_save_model(config_.run.out);
  if (!problem.empty() && world_.rank() == 0)
    log_warning("{}; the best model so far, of step {}, was not saved; training continues", problem, step_);
  if (problem.empty())
    note(report::ReportEvent::Kind::checkpoint, fmt::format("best so far: saved in {}", config_.run.out));
}

void Trainer::save_model(const Path& folder) {
  loop_.finish();
  const std::string problem = try_save_model(folder);
  require(problem.empty(), ErrorKind::io, "{}", problem);
}

// Returns the error of the disk, the same on all ranks; empty if there was none.
std::string Trainer::try_save_model(const Path& folder) {
  std::string problem = saver_.save(folder);
  try {
    if (world_.rank() == 0 && problem.empty()) write_template(folder);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::io) throw;
    problem = error.what();
  }
  problem = comm::first_problem(world_, problem, "saving the model");
  if (problem.empty() && folder == config_.run.out) summary_.saved_step = step_;
  return problem;
}

// Saves a chat template that is not from the model folder too, so that the result is prompted as it was
// trained.
void Trainer::write_template(const Path& folder) const {
  if (config_.data.chat_template.empty()) return;
  const data::ChatTemplate used = data::ChatTemplate::open(config_.run.model, config_.data.chat_template);
  replace_file(folder / "chat_template.jinja", used.source());
}

void Trainer::note(report::ReportEvent::Kind kind, const std::string& text) {
  if (reporter_) reporter_->note(step_, kind, text);
}

// With --keep-best the folder holds the best model already; the last model of an interrupted run is saved
// beside it.
void Trainer::save_result() {
  const bool has_best = config_.eval.keep_best && summary_.saved_step > 0;
  if (!has_best) return save_model(config_.run.out);
  const std::optional<report::Evaluation>& best = stopping_.best();
  if (best && best->step != summary_.saved_step && world_.rank() == 0)
    log_warning("[train] {} holds the model of step {}: the best, of step {}, could not be saved",
                config_.run.out, summary_.saved_step, best->step);
  if (!summary_.interrupted || summary_.saved_step == step_) return;
  summary_.last = (Path(config_.run.out) / "last").string();
  save_model(summary_.last);
}

void Trainer::note_end() {
  if (summary_.interrupted) {
    note(report::ReportEvent::Kind::note,
         fmt::format("interrupted after step {} of {}: saving", step_, setup_.steps));
  } else if (summary_.stopped_early) {
    note(report::ReportEvent::Kind::early_stop,
         fmt::format("no better evaluation in {} tries: stopping", config_.eval.early_stopping));
  }
}

report::RunSummary Trainer::finish() {
  loop_.finish();
  loop_.add_to(summary_);
  summary_.out = config_.run.out;
  summary_.best = stopping_.best();
  note_end();
  // The checkpoint goes first: there may be little time after a request to stop.
  const std::string unsaved = checkpoints_ ? checkpoints_->finish() : "";
  summary_.weights_hash = engine_.weights_hash();
  save_result();
  finish_reports();
  peers_.finish(stays_in_memory() || !unsaved.empty());
  // Last, because by now the model is saved whatever happened to these.
  require(unsaved.empty(), ErrorKind::io, "{}; the model is in {}", unsaved, config_.run.out);
  if (!config_.run.trace.empty()) report::write_step_trace(config_.run.trace, engine_, world_);
  if (world_.rank() == 0 && !config_.run.done_file.empty()) replace_file(config_.run.done_file, "");
  return summary_;
}

void Trainer::finish_reports() {
  summary_.advice = world_.exchange(loop_.advice(run_.memory_limit), "advice of rank 0").front();
  std::vector<report::RankMemory> memory;
  for (const std::string& bytes :
       world_.exchange(report::pack_memory(engine_.ledger()), "memory of all ranks"))
    memory.push_back(report::unpack_memory(bytes));
  if (!reporter_) return;
  reporter_->finish(summary_, std::move(memory),
                    report::timeline_of(engine_.program(), engine_.units(), engine_.executor().times()));
}

void train_to_end(Trainer& trainer) {
  trainer.evaluate_if_due();
  while (!trainer.done()) {
    trainer.step();
    trainer.evaluate_if_due();
    trainer.save_if_due();
  }
}

report::RunSummary train(config::ParsedConfig parsed, const std::function<void(Trainer&)>& loop) {
  std::unique_ptr<const FolderLock> lock;
  report::RunSummary summary;
  std::mutex mutex;
  run_ranks(parsed.config.run, true, [&](comm::World& world) {
    Trainer trainer(parsed, world, lock);
    loop(trainer);
    const report::RunSummary mine = trainer.finish();
    const std::scoped_lock one(mutex);  // all ranks return the same
    summary = mine;
  });
  return summary;
}

}  // namespace zeno::train
