// Runs optimizer steps and takes their results: at once on a CPU, one step late on a GPU, so that the device
// never waits for the host. With fp16 it waits, because an overflow must be known before the next step. Every
// rank has one; all see the same results. For one thread.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <optional>

#include "zeno/config/loss_scale.h"
#include "zeno/data/prefetcher.h"
#include "zeno/report/reporter.h"
#include "zeno/report/trouble_watch.h"
#include "zeno/train/loss_watch.h"
#include "zeno/train/saving/run_state.h"
#include "zeno/zero/engine.h"

namespace zeno::train {

class StepLoop {
 public:
  // Collective. `reporter` is null on ranks other than 0. All references must outlive the loop.
  StepLoop(zero::Engine& engine, comm::World& world, const config::TrainConfig& config,
           const data::Loader& loader, report::Reporter* reporter);

  // Collective: runs the next step. Returns what the ranks agreed on: a request to one rank stops all ranks.
  // Throws Error(data) after as many bad steps in a row as the config allows.
  zero::Wishes run(data::Prefetcher& batches, zero::Wishes wishes);
  // Takes the results of all steps in progress.
  void finish();
  // Between steps: adds the time in which no step ran because the state was being copied.
  void add_save(double ms) { saved_ms_ += ms; }

  int64_t steps() const { return collected_; }
  // The last result that was taken.
  const zero::StepResult& result() const { return result_; }
  // Between steps, when none is in progress.
  LoopState state() const;
  void restore(const LoopState& state);
  // Adds the summary of the steps of a run.
  void add_to(report::RunSummary& summary) const;
  // What would make the run faster (troubles.h), on rank 0; empty on others.
  std::string advice(size_t memory_limit) const {
    return troubles_ ? troubles_->advice(memory_limit) : std::string();
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct UnderWay {
    zero::StepControl control;
    double wait_ms = 0;
    bool saving = false;  // on some rank
  };

  void collect();
  void watch(const zero::StepResult& result, double loss_scale);
  void look_for_troubles(const zero::StepResult& result, const UnderWay& step, double seconds);
  std::string batch_of(int64_t step);
  report::StepRecord record_of(const zero::StepResult& result, const UnderWay& step, double seconds) const;

  zero::Engine& engine_;
  comm::World& world_;
  const config::TrainConfig& config_;
  const data::Loader& loader_;
  report::Reporter* reporter_;
  LossWatch watch_;
  std::optional<report::TroubleWatch> troubles_;  // if there is a reporter
  zero::RankTimes spent_;                         // on the step collected last
  double saved_ms_ = 0;                           // since that step
  std::optional<config::LossScaler> scaler_;
  bool late_ = false;
  std::deque<UnderWay> under_way_;
  int64_t submitted_ = 0, collected_ = 0, skipped_ = 0;
  int64_t tokens_ = 0, inputs_ = 0;
  zero::StepResult result_;
  double loss_ = 0, seconds_ = 0, wait_s_ = 0;
  // Steps of this process, and their time after warm-up of caches, clocks and graphs.
  static constexpr int64_t kWarmUp = 3;
  int64_t here_ = 0;
  double steady_s_ = 0;
  Clock::time_point last_;
};

}  // namespace zeno::train
