// A short training run with ranks as threads: what it computed and what it used.
#pragma once

#include <mutex>
#include <optional>
#include <ostream>
#include <vector>

#include "tests/support/tiny_decoder.h"
#include "tests/support/wrapped_layer.h"
#include "zeno/comm/world.h"
#include "zeno/zero/engine.h"

namespace zeno::test {

struct RunSpec {
  Family family = Family::llama;
  TinyShape shape;
  nn::BatchShape batch{2, 12};
  int world = 1;
  int inner = 0;  // ranks along the mesh's `inner`; 0: all
  int pipe = 1, context = 1;
  Device device;  // of every rank: several may share a GPU
  std::optional<zero::Timing> timing;
  zero::Policy policy;
  int steps = 3;
  double clip = 1.0;
  double loss_scale = 1.0;
  float lr = 1e-2f;
  OptimizerHyper::Kind optimizer = OptimizerHyper::Kind::adamw;
  std::vector<std::string> frozen;  // parameter names
  zero::Engine::ValueReader values = init_values;
  DiskOptions disk;
};

struct RunResult {
  std::vector<double> losses, norms;
  uint64_t hash = 0;
  comm::Traffic traffic;        // of rank 0, last step
  size_t booked = 0, peak = 0;  // of rank 0's device
  std::array<size_t, kTiers.size()> booked_tiers{}, peak_tiers{};
  zero::ProgramTraffic formula;
  bool operator==(const RunResult& other) const {
    return losses == other.losses && norms == other.norms && hash == other.hash;
  }
};

// What a failed comparison shows.
inline void PrintTo(const RunResult& result, std::ostream* out) {
  for (size_t i = 0; i < result.losses.size(); ++i) {
    *out << std::hexfloat << "step " << i << " loss " << result.losses[i] << " norm " << result.norms[i]
         << ", ";
  }
  *out << std::hex << "weights " << result.hash << std::dec << std::defaultfloat;
}

// Passes parameters through, some of them frozen.
class FrozenLayer final : public WrappedLayer {
 public:
  FrozenLayer(std::unique_ptr<nn::Layer> inner, std::vector<std::string> names)
      : WrappedLayer(std::move(inner)), names_(std::move(names)) {}
  std::vector<nn::Parameter> parameters() const override {
    std::vector<nn::Parameter> params = WrappedLayer::parameters();
    for (nn::Parameter& param : params) {
      for (const std::string& frozen : names_) param.trainable &= param.name != frozen;
    }
    return params;
  }

 private:
  std::vector<std::string> names_;
};

inline nn::LayerList model_of(const RunSpec& spec) {
  nn::LayerList model = tiny_decoder(spec.family, spec.shape);
  if (!spec.frozen.empty()) {
    for (auto& layer : model.layers) layer = std::make_unique<FrozenLayer>(std::move(layer), spec.frozen);
  }
  return model;
}

inline comm::Mesh mesh_of(const RunSpec& spec) {
  return comm::mesh_of(
      {.ranks = spec.world, .group = spec.inner, .pipe = spec.pipe, .context = spec.context});
}

inline zero::EngineOptions options_of(const RunSpec& spec) {
  return {.policy = spec.policy,
          .mesh = mesh_of(spec),
          .shape = {spec.batch.batch, spec.batch.seq / spec.context},
          .device = spec.device,
          .threads = 1,
          .timing = spec.timing,
          .disk = spec.disk};
}

// The same global batch on any mesh with as many micro-batches in all.
inline std::vector<OwnedBatch> batches_of(const RunSpec& spec, int rank, int step) {
  const comm::Mesh mesh = mesh_of(spec);
  const int first = mesh.place(rank, comm::kBatchAxes) * spec.policy.micro_batches;
  std::vector<OwnedBatch> batches;
  for (int mb = 0; mb < spec.policy.micro_batches; ++mb) {
    const OwnedBatch whole = make_batch(spec.batch, spec.shape.vocab, step, first + mb);
    batches.push_back(cut_batch(whole, spec.batch, spec.context, mesh.coordinate(rank, comm::Axis::context)));
  }
  return batches;
}

// One rank's run; every rank returns the same losses, norms and hash.
inline RunResult run_rank(const RunSpec& spec, comm::World& world) {
  zero::Engine engine(model_of(spec), options_of(spec), world);
  engine.load(spec.values);
  RunResult result;
  for (int step = 0; step < spec.steps; ++step) {
    const std::vector<OwnedBatch> owned = batches_of(spec, world.rank(), step);
    std::vector<zero::MicroBatch> views;
    for (const OwnedBatch& batch : owned) views.push_back(batch.view());
    zero::StepControl control;
    control.hyper = {.kind = spec.optimizer,
                     .lr = spec.lr,
                     .beta2 = 0.95f,
                     .weight_decay = 0.1f,
                     .momentum = 0.9f,
                     .step = step + 1};
    control.clip = spec.clip;
    control.loss_scale = spec.loss_scale;
    const zero::StepResult out = engine.step(views, control);
    result.losses.push_back(out.loss);
    result.norms.push_back(out.grad_norm);
    result.traffic = out.traffic;
  }
  result.hash = engine.weights_hash();
  for (Tier tier : kTiers) {
    result.booked_tiers[size_t(tier)] = engine.ledger().booked(tier);
    result.peak_tiers[size_t(tier)] = engine.ledger().peak(tier);
  }
  result.booked = engine.ledger().booked(Tier::device);
  result.peak = engine.ledger().peak(Tier::device);
  result.formula = zero::traffic_of(engine.program(), engine.units(), engine.mesh());
  return result;
}

inline RunResult run_threads(const RunSpec& spec) {
  RunResult result;
  comm::run_thread_ranks(spec.world, {.deadline = std::chrono::seconds(20)}, [&](comm::World& world) {
    RunResult mine = run_rank(spec, world);
    if (world.rank() == 0) result = std::move(mine);
  });
  return result;
}

}  // namespace zeno::test
