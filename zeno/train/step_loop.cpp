#include "zeno/train/step_loop.h"

#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/host.h"
#include "zeno/config/engine_options.h"
#include "zeno/train/evaluation.h"

namespace zeno::train {

StepLoop::StepLoop(zero::Engine& engine, comm::World& world, const config::TrainConfig& config,
                   const data::Loader& loader, report::Reporter* reporter)
    : engine_(engine),
      world_(world),
      config_(config),
      loader_(loader),
      reporter_(reporter),
      watch_(config.watch, config.precision.compute == DType::f16) {
  if (config.precision.compute == DType::f16) scaler_.emplace(config.precision.loss_scale);
  late_ = engine.shape().device == Device::Kind::cuda && !scaler_;
  std::vector<std::string> hosts = world.exchange(host_name(), "names of hosts");
  if (reporter != nullptr) troubles_.emplace(engine, config, std::move(hosts));
}

zero::Wishes StepLoop::run(data::Prefetcher& batches, zero::Wishes wishes) {
  const Clock::time_point start = Clock::now();
  if (under_way_.empty()) last_ = start;  // nothing was running: evaluation and saving do not count
  const std::vector<data::HostBatch> batch = batches.get();
  const std::chrono::duration<double, std::milli> wait = Clock::now() - start;
  UnderWay step{{.hyper = config::hyper_after(config_, submitted_ - skipped_),
                 .clip = config_.optimizer.gradient_clipping,
                 .wishes = wishes,
                 .spent = spent_},
                wait.count()};
  if (scaler_) step.control.loss_scale = scaler_->scale();
  const zero::Wishes agreed = engine_.submit(views_of(batch), step.control);
  step.saving = agreed.busy;
  if (submitted_++ > 0) wait_s_ += wait.count() / 1000;
  under_way_.push_back(step);
  if (under_way_.size() > (late_ ? 1u : 0u)) collect();
  return agreed;
}

void StepLoop::finish() {
  while (!under_way_.empty()) collect();
}

void StepLoop::collect() {
  result_ = engine_.collect();
  const zero::StepResult& result = result_;
  const UnderWay step = under_way_.front();
  under_way_.pop_front();
  ++collected_;
  if (scaler_) scaler_->update(result.skipped);
  skipped_ += result.skipped;
  const std::chrono::duration<double> seconds = Clock::now() - last_;
  last_ = Clock::now();
  seconds_ += seconds.count();
  if (++here_ > kWarmUp) steady_s_ += seconds.count();
  tokens_ += result.tokens;
  inputs_ += result.inputs;
  loss_ = result.loss;
  if (reporter_ != nullptr) {
    reporter_->step(record_of(result, step, seconds.count()));
    look_for_troubles(result, step, seconds.count());
  }
  const zero::StepTimes times = result.times.value_or(zero::StepTimes{});
  spent_ = {float(times.compute), float(times.communication), float(times.link),
            float(times.disk),    float(times.other),         float(step.wait_ms)};
  watch(result, step.control.loss_scale);
}

report::StepRecord StepLoop::record_of(const zero::StepResult& result, const UnderWay& step,
                                       double seconds) const {
  report::StepRecord record;
  record.step = collected_;
  record.epoch = loader_.epochs_after(collected_);
  record.loss = result.loss;
  record.grad_norm = result.grad_norm;
  record.lr = step.control.hyper.lr;
  record.tokens = tokens_;
  record.num_tokens = inputs_;
  record.tokens_per_s = double(result.inputs) / seconds;
  record.step_ms = seconds * 1000;
  record.data_wait_ms = step.wait_ms;
  record.loss_scale = step.control.loss_scale;
  record.skipped = result.skipped;
  if (result.skipped) record.first_bad = report::BadTensor{result.bad_tensor, result.bad_rank};
  if (result.times) record.exposed_comm_ms = result.times->exposed();
  record.bytes_gathered = uint64_t(result.traffic.gathered);
  // Gradients in cells are exchanged before they are summed.
  record.bytes_reduced = uint64_t(result.traffic.reduced + result.traffic.exchanged);
  record.peak_device = engine_.ledger().peak(Tier::device);
  record.peak_host = engine_.ledger().peak(Tier::host);
  record.peak_disk = engine_.ledger().peak(Tier::disk);
  return record;
}

// Uses the ranks' times of the previous step for this one, because only lasting troubles are reported.
void StepLoop::look_for_troubles(const zero::StepResult& result, const UnderWay& step, double seconds) {
  report::Observation seen = report::observe(engine_.rank_times());
  seen.step_ms = seconds * 1000;
  seen.loss_scale = step.control.loss_scale;
  seen.skipped = result.skipped && scaler_;
  seen.saving = step.saving;
  seen.saved_ms = std::exchange(saved_ms_, 0);
  for (const std::string& line : troubles_->look(seen))
    reporter_->note(collected_, report::ReportEvent::Kind::warning, line);
}

// Every rank has its own part of the batch. Called only after a bad step, which all ranks see.
std::string StepLoop::batch_of(int64_t step) {
  std::string text;
  const std::vector<std::string> all = world_.exchange(loader_.origins(step), "samples of a bad step");
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all.size() > 1) text += fmt::format("{}rank {}: ", rank > 0 ? "; " : "", rank);
    text += all[rank];
  }
  return text;
}

void StepLoop::watch(const zero::StepResult& result, double loss_scale) {
  const double mean = watch_.mean();
  const LossWatch::Verdict verdict = watch_.look(result.loss, result.skipped);
  if (verdict == LossWatch::Verdict::good) {
    if (result.skipped && reporter_ != nullptr) {
      reporter_->note(
          collected_, report::ReportEvent::Kind::warning,
          fmt::format(
              "step {} skipped: the gradient of {} is not finite (first found on rank {}), loss scale {}",
              collected_, result.bad_tensor, result.bad_rank, loss_scale));
    }
    return;
  }
  report::BadStepRecord bad{.step = collected_,
                            .kind = verdict == LossWatch::Verdict::spike ? "spike" : "not_finite",
                            .loss = result.loss,
                            .mean = mean,
                            .first_bad = {},
                            .batch = batch_of(collected_ - 1)};
  if (result.skipped) bad.first_bad = report::BadTensor{result.bad_tensor, result.bad_rank};
  if (reporter_ != nullptr) reporter_->bad_step(bad);
  require(!watch_.give_up(), ErrorKind::data,
          "[train] {} bad steps in a row, up to step {} (loss {}, recent mean {:.4f}); the last batch: {}; "
          "lower the learning rate, clip gradients or look at that data; {} was not overwritten",
          watch_.bad_in_a_row(), collected_, result.loss, mean, bad.batch, config_.run.out);
}

LoopState StepLoop::state() const {
  ensure(under_way_.empty(), "[train] {} steps are under way, expected none", under_way_.size());
  LoopState state{.steps = collected_,
                  .skipped = skipped_,
                  .tokens = tokens_,
                  .inputs = inputs_,
                  .loss = loss_,
                  .seconds = seconds_,
                  .wait_s = wait_s_,
                  .scale = {},
                  .watch = watch_.state()};
  if (scaler_) state.scale = scaler_->state();
  return state;
}

void StepLoop::restore(const LoopState& state) {
  submitted_ = collected_ = state.steps;
  skipped_ = state.skipped;
  tokens_ = state.tokens;
  inputs_ = state.inputs;
  loss_ = state.loss;
  seconds_ = state.seconds;
  wait_s_ = state.wait_s;
  if (scaler_ && state.scale) scaler_->restore(*state.scale);
  watch_.restore(state.watch);
}

void StepLoop::add_to(report::RunSummary& summary) const {
  summary.steps = collected_;
  summary.epochs = loader_.epochs_after(collected_);
  summary.loss = loss_;
  summary.seconds = seconds_;
  if (here_ > kWarmUp) summary.step_s = steady_s_ / double(here_ - kWarmUp);
  summary.data_wait_s = wait_s_;
  summary.tokens = tokens_;
  summary.num_tokens = inputs_;
  summary.peak_bytes = engine_.ledger().peak(Tier::device);
}

}  // namespace zeno::train
