#include "zeno/train/trainer.h"

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>

#include "zeno/base/log.h"
#include "zeno/data/prefetcher.h"
#include "zeno/data/tokenizer.h"
#include "zeno/device/device.h"
#include "zeno/kernels/cuda/matmul_plans.h"
#include "zeno/model/export.h"
#include "zeno/model/layers.h"
#include "zeno/model/weights.h"
#include "zeno/plan/fit.h"
#include "zeno/plan/recompute.h"
#include "zeno/train/config_resolve.h"
#include "zeno/train/metrics.h"
#include "zeno/train/policy.h"
#include "zeno/train/progress.h"
#include "zeno/train/step_trace.h"

namespace zeno::train {
namespace {

data::TokenSource open_data(const TrainConfig& config, const model::ModelConfig& model) {
  require(!config.run.data.empty(), ErrorKind::usage,
          "[train] no data: give --data FILE, or --data generated");
  if (config.run.data.size() == 1 && config.run.data[0] == "generated") {
    return data::TokenSource::generated(
        {.vocab_size = model.vocab, .tokens = 1 << 20, .seed = uint64_t(config.run.seed)});
  }
  std::optional<data::Tokenizer> tokenizer;
  if (std::filesystem::exists(std::filesystem::path(config.run.model) / "tokenizer.json")) {
    tokenizer = data::Tokenizer::open(config.run.model);
  }
  const std::vector<Path> paths(config.run.data.begin(), config.run.data.end());
  return data::TokenSource::open(paths, model.vocab, tokenizer ? &*tokenizer : nullptr);
}

int64_t total_steps(const RunConfig& run, const data::Loader& loader) {
  if (run.steps > 0) return run.steps;
  return std::max<int64_t>(1, std::llround(run.epochs * double(loader.steps_per_epoch())));
}

std::vector<zero::MicroBatch> views_of(const std::vector<data::HostBatch>& batches) {
  std::vector<zero::MicroBatch> views;
  for (const data::HostBatch& b : batches) {
    views.push_back({b.tokens, b.targets, b.positions, b.doc_start, b.valid_rows});
  }
  return views;
}

// Rank 0 writes, all ranks provide their shards; memory stays at one piece.
void save_model(zero::Engine& engine, const model::ModelConfig& config, const RunConfig& run, int rank) {
  const std::vector<nn::Parameter>& table = engine.units().params;
  std::optional<model::ModelWriter> writer;
  if (rank == 0) {
    writer.emplace(run.out, config, table, model::ExportOptions{.dtype = config.dtype});
  }
  constexpr int64_t kPiece = 1 << 20;
  std::vector<float> values;
  for (int p = 0; p < int(table.size()); ++p) {
    for (int64_t begin = 0; begin < table[p].count(); begin += kPiece) {
      values.resize(size_t(std::min(kPiece, table[p].count() - begin)));
      engine.read(zero::State::master, p, begin, values);
      if (writer) writer->write(table[p], begin, values);
    }
  }
  if (!writer) return;
  writer->commit();
  model::copy_companions(run.model, run.out);
}

StepRecord record_of(const zero::StepResult& result, const zero::StepControl& control, double seconds) {
  StepRecord record;
  record.loss = result.loss;
  record.grad_norm = result.grad_norm;
  record.lr = control.hyper.lr;
  record.tokens_per_s = double(result.tokens) / seconds;
  record.step_ms = seconds * 1000;
  record.loss_scale = control.loss_scale;
  record.skipped = result.skipped;
  if (result.skipped) record.first_bad = BadTensor{result.bad_tensor, result.bad_rank};
  record.exposed_comm_ms = result.exposed_ms;
  record.bytes_gathered = uint64_t(result.traffic.gathered);
  record.bytes_reduced = uint64_t(result.traffic.reduced);
  return record;
}

// What rank 0 shows and writes; other ranks have none.
class Reporter {
 public:
  Reporter(const RunConfig& run, int64_t steps, const zero::Engine& engine)
      : metrics_(run.log.empty() ? Path(run.out) / "metrics.jsonl" : Path(run.log)),
        progress_(STDERR_FILENO, steps, run.steps_per_print),
        engine_(engine) {}

  void step(StepRecord record, int64_t tokens) {
    tokens_ += tokens;
    record.tokens = tokens_;
    record.peak_device = engine_.ledger().peak(Tier::device);
    metrics_.append(record);
    progress_.update(record);
    if (record.skipped) {
      // On a GPU the result comes one step late, when the gradients themselves are gone.
      const std::string& name = record.first_bad->name;
      log_warning("step {} skipped: the gradient of {} is not finite (first found on rank {}), loss scale {}",
                  record.step, name.empty() ? "some tensor" : name, record.first_bad->rank,
                  record.loss_scale);
    }
  }
  void finish(uint64_t hash) {
    progress_.finish();
    metrics_.finish(hash);
    log_info("done: weights_hash {:016x}", hash);
  }

 private:
  MetricsFile metrics_;
  Progress progress_;
  const zero::Engine& engine_;
  int64_t tokens_ = 0;
};

// All ranks must choose alike, so the one with least memory decides.
size_t least_of_all_ranks(comm::World& world, size_t mine) {
  size_t least = mine;
  for (const std::string& bytes : world.exchange({reinterpret_cast<const char*>(&mine), sizeof(mine)})) {
    size_t theirs;
    std::memcpy(&theirs, bytes.data(), sizeof(theirs));
    least = std::min(least, theirs);
  }
  return least;
}

// Submits steps and takes their results: at once on a CPU, one step late on a GPU, so that the device never
// waits for the host. fp16 needs to know of an overflow before the next step, and waits.
class StepLoop {
 public:
  StepLoop(zero::Engine& engine, const TrainConfig& config, Reporter* reporter)
      : engine_(engine), config_(config), reporter_(reporter) {
    if (config.precision.compute == DType::f16) scaler_.emplace(config.precision.loss_scale);
    late_ = engine.executor().compute().device().kind == Device::Kind::cuda && !scaler_;
  }

  void run(const std::vector<data::HostBatch>& batch) {
    zero::StepControl control{.hyper = hyper_after(config_, submitted_ - skipped_),
                              .clip = config_.optimizer.gradient_clipping};
    if (scaler_) control.loss_scale = scaler_->scale();
    engine_.submit(views_of(batch), control);
    ++submitted_;
    controls_.push_back(control);
    if (controls_.size() > (late_ ? 1u : 0u)) collect();
  }

  void finish() {
    while (!controls_.empty()) collect();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void collect() {
    const zero::StepResult result = engine_.collect();
    const zero::StepControl control = controls_.front();
    controls_.pop_front();
    ++collected_;
    if (scaler_) scaler_->update(result.skipped);
    skipped_ += result.skipped;
    const std::chrono::duration<double> seconds = Clock::now() - last_;
    last_ = Clock::now();
    if (reporter_ == nullptr) return;
    StepRecord record = record_of(result, control, seconds.count());
    record.step = collected_;
    reporter_->step(std::move(record), result.tokens);
  }

  zero::Engine& engine_;
  const TrainConfig& config_;
  Reporter* reporter_;
  std::optional<LossScaler> scaler_;
  bool late_ = false;
  std::deque<zero::StepControl> controls_;  // of the steps under way
  int64_t submitted_ = 0, collected_ = 0, skipped_ = 0;
  Clock::time_point last_ = Clock::now();
};

}  // namespace

void train_rank(ParsedConfig parsed, comm::World& world) {
  set_log_rank(world.rank());
  const model::ModelConfig model = model::load_config(parsed.config.run.model);
  resolve_batch(parsed, world.size());
  resolve_model(parsed, model.hidden, model.layers);
  TrainConfig& config = parsed.config;
  const RunConfig& run = config.run;
  require(!run.out.empty(), ErrorKind::usage, "[train] no output folder: give --out DIR");
  if (world.rank() == 0)
    make_folders(run.out);  // before any work: a run that cannot be saved should not start

  const int64_t seq = sequence_length(run, model.max_positions);
  const data::TokenSource source = open_data(config, model);
  const data::Loader loader(source, {.seq_len = seq,
                                     .micro_batch = config.batch.micro_batch,
                                     .grad_accum = config.batch.grad_accum,
                                     .rank = world.rank(),
                                     .world = world.size(),
                                     .seed = uint64_t(run.seed)});
  const int64_t steps = total_steps(run, loader);
  resolve_steps(parsed, steps);

  nn::LayerList layers = model::build_layers(model, seq);
  zero::EngineOptions options = engine_options(config, seq, device_of(run, world.local_rank()));
  options.timed = !run.trace.empty();
  if (config.sparse_gradients && options.device.kind == Device::Kind::cuda) {
    log_warning(
        "sparse_gradients: GPUs reduce whole gradients, which gives the same bits; the key has no effect");
  }
  const size_t limit = least_of_all_ranks(world, memory_limit(options.device, world.local_size()));
  if (config.recompute.mode == RecomputeMode::automatic) {
    plan::choose_recompute(layers, options, world.size(), limit);
    log_info("{}", plan::describe_recompute(layers, options.policy));
  }
  plan::require_fit(layers, options, world.size(), limit);
  const model::WeightReader weights(run.model, model::parameter_table(layers));
  // What the engine learns about matrix products of a GPU is kept in a file: the next run starts sooner, and
  // with the same algorithms, hence the same bits. Every process times what the file does not know and one of
  // each host writes, so processes of a first run may differ in their choices, and agree from the second run
  // on.
  const bool plans = options.device.kind == Device::Kind::cuda;
  const Path plan_file = Path(run.cache) / "matmul_plans.txt";
  if (plans) cuda::load_matmul_plans(plan_file);
  zero::Engine engine(std::move(layers), options, world);
  if (plans && world.local_rank() == 0) cuda::save_matmul_plans(plan_file);
  engine.load([&](const nn::Parameter& param, int64_t begin, std::span<float> out) {
    weights.read(param, begin, begin + int64_t(out.size()), out.data());
  });
  log_info("{} parameters, {} ranks, stage {}, {} steps of {}×{}×{} tokens per rank; memory per rank:\n{}",
           engine.units().elements(), world.size(), config.zero.stage, steps, config.batch.grad_accum,
           config.batch.micro_batch, seq, engine.ledger().report());

  std::optional<Reporter> reporter;
  if (world.rank() == 0) reporter.emplace(run, steps, engine);
  data::Prefetcher batches(loader, 0);
  StepLoop loop(engine, config, reporter ? &*reporter : nullptr);
  for (int64_t step = 0; step < steps; ++step) loop.run(batches.get());
  loop.finish();
  if (!run.trace.empty()) write_step_trace(run.trace, engine, world);
  const uint64_t hash = engine.weights_hash();
  save_model(engine, model, run, world.rank());
  if (reporter) reporter->finish(hash);
}

}  // namespace zeno::train
