#include "zeno/train/trainer.h"

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>

#include "zeno/base/log.h"
#include "zeno/data/prefetcher.h"
#include "zeno/data/tokenizer.h"
#include "zeno/device/device.h"
#include "zeno/model/export.h"
#include "zeno/model/layers.h"
#include "zeno/model/weights.h"
#include "zeno/plan/fit.h"
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
      log_warning("step {} skipped: the gradient of {} is not finite (first found on rank {}), loss scale {}",
                  record.step, record.first_bad->name, record.first_bad->rank, record.loss_scale);
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
  zero::EngineOptions options = engine_options(config, seq);
  plan::require_fit(layers, options, world.size(), available_host_memory() / size_t(world.local_size()));
  const model::WeightReader weights(run.model, model::parameter_table(layers));
  zero::Engine engine(std::move(layers), options, world);
  engine.load([&](const nn::Parameter& param, int64_t begin, std::span<float> out) {
    weights.read(param, begin, begin + int64_t(out.size()), out.data());
  });
  log_info("{} parameters, {} ranks, stage {}, {} steps of {}×{}×{} tokens per rank; memory per rank:\n{}",
           engine.units().elements(), world.size(), config.zero.stage, steps, config.batch.grad_accum,
           config.batch.micro_batch, seq, engine.ledger().report());

  std::optional<Reporter> reporter;
  if (world.rank() == 0) reporter.emplace(run, steps, engine);
  std::optional<LossScaler> scaler;
  if (config.precision.compute == DType::f16) scaler.emplace(config.precision.loss_scale);
  data::Prefetcher batches(loader, 0);
  int64_t completed = 0;
  for (int64_t step = 0; step < steps; ++step) {
    const auto start = std::chrono::steady_clock::now();
    const std::vector<data::HostBatch> batch = batches.get();
    zero::StepControl control{.hyper = hyper_after(config, completed),
                              .clip = config.optimizer.gradient_clipping};
    if (scaler) control.loss_scale = scaler->scale();
    const zero::StepResult result = engine.step(views_of(batch), control);
    if (scaler) scaler->update(result.skipped);
    completed += result.skipped ? 0 : 1;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (!reporter) continue;
    StepRecord record = record_of(result, control, seconds.count());
    record.step = step + 1;
    reporter->step(std::move(record), result.tokens);
  }
  if (!run.trace.empty()) write_step_trace(run.trace, engine, world);
  const uint64_t hash = engine.weights_hash();
  save_model(engine, model, run, world.rank());
  if (reporter) reporter->finish(hash);
}

}  // namespace zeno::train
