// A training run: reads a model folder and data, reports losses, writes a model folder. train() is a whole
// run; a Trainer is one rank's part of it, which the caller can step.
//
// All calls except accessors are collective: all ranks make the same calls in the same order. Thread rule:
// one thread per trainer.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "zeno/comm/world.h"
#include "zeno/config/config_parser.h"
#include "zeno/data/prefetcher.h"
#include "zeno/report/reporter.h"
#include "zeno/report/run_summary.h"
#include "zeno/train/early_stopping.h"
#include "zeno/train/run_engine.h"
#include "zeno/train/run_setup.h"
#include "zeno/train/saving/checkpoint_saver.h"
#include "zeno/train/saving/folder_lock.h"
#include "zeno/train/saving/model_saver.h"
#include "zeno/train/saving/peer_snapshot.h"
#include "zeno/train/saving/run_state.h"
#include "zeno/train/step_loop.h"

namespace zeno::train {

class Trainer {
 public:
  // Decides what the config leaves open (run_setup.h), loads the weights and resumes if the config says so.
  // Rank 0 leaves the lock on the output folder in `lock`, which must outlive the world: other ranks may
  // still write after this one has failed.
  Trainer(config::ParsedConfig config, comm::World& world, std::unique_ptr<const FolderLock>& lock);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // True when all steps are done, an evaluation has ended the run early, or a signal requested a stop
  // (interrupt.h).
  bool done() const { return agreed_.stop || step_ >= setup_.steps; }
  // One optimizer step. Must not be called when done(). Throws Error(data) after too many bad steps
  // (--max-bad-steps).
  void step();
  // Evaluates on the evaluation data, which the config must have. The result counts for early stopping and
  // the best model. Returns nothing if a signal requested a stop.
  std::optional<report::EvalRecord> evaluate();
  // Begins to write a checkpoint while training continues. This needs memory that is reserved at the start:
  // Error(usage) in a run without --save-every.
  void save();
  // What is due by the config after this step, or before the first: an evaluation; a checkpoint or a peer
  // snapshot.
  void evaluate_if_due();
  void save_if_due();
  // Writes the current model as a Hugging Face folder, or its adapter as a PEFT folder. Error(io) if that
  // fails.
  void save_model(const Path& folder);
  // Ends a run that went well, done() or not: waits for checkpoints and writes the result and the reports.
  // Only accessors may be called afterwards. All ranks return the same.
  report::RunSummary finish();

  int64_t steps() const { return step_; }  // including those before a resume
  int64_t planned_steps() const { return setup_.steps; }
  // The result of the last step on a CPU, of the step before it on a GPU, which runs one step ahead of the
  // host.
  const zero::StepResult& result() const { return loop_.result(); }
  const config::ParsedConfig& config() const { return setup_.parsed; }  // with everything decided
  zero::Engine& engine() { return engine_; }

 private:
  bool evaluates_after(int64_t step) const;
  bool saves_after(int64_t step) const;
  // Requests from outside, by a signal or a file.
  Path save_request() const { return Path(config_.run.out) / "SAVE"; }
  bool save_requested() const;
  bool sees_save_request() const;
  void drop_save_request();

  RunState run_state(const LoopState& loop) const;
  void take_state(bool disk, bool memory);
  bool stays_in_memory() const;
  bool save_checkpoint(const std::string& run);

  void save_best();
  void save_result();
  std::string try_save_model(const Path& folder);
  void write_template(const Path& folder) const;
  void note(report::ReportEvent::Kind kind, const std::string& text);
  void note_end();
  void finish_reports();

  comm::World& world_;
  RunSetup setup_;
  const config::TrainConfig& config_ = setup_.parsed.config;
  RunEngine run_;
  zero::Engine& engine_ = *run_.engine;
  std::string adapter_;     // a description; empty: the whole model is trained
  int64_t evaluated_ = -1;  // the last evaluated step
  bool ignores_save_file_ = false;
  EarlyStopping stopping_;
  report::RunSummary summary_;
  RunState resumed_;  // all zeros if the run was not resumed
  int64_t step_;
  zero::Wishes agreed_;  // by all ranks, in the last step
  std::unique_ptr<report::Reporter> reporter_;
  StepLoop loop_;
  ModelSaver saver_;
  std::optional<CheckpointSaver> checkpoints_;
  PeerSaver peers_;
  data::Prefetcher batches_;
};

// The default loop: all steps, and what is due after each.
void train_to_end(Trainer& trainer);

// Starts the ranks of a config (launch.h); each makes a trainer, runs `loop` and calls finish(). Meanwhile
// Ctrl-C, SIGTERM and SIGUSR1 end the run after the current step, and the model is saved (interrupt.h).
report::RunSummary train(config::ParsedConfig parsed,
                         const std::function<void(Trainer&)>& loop = train_to_end);

}  // namespace zeno::train
