#include "zeno/train/run_engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "zeno/base/file.h"
#include "zeno/base/host.h"
#include "zeno/base/log.h"
#include "zeno/config/engine_options.h"
#include "zeno/config/tuning.h"
#include "zeno/kernels/cuda/matmul/matmul_plans.h"
#include "zeno/model/adapter_weights.h"
#include "zeno/model/layers.h"
#include "zeno/plan/fit.h"
#include "zeno/plan/machine/cpu_share.h"
#include "zeno/plan/machine/measure.h"
#include "zeno/plan/memory_limits.h"
#include "zeno/plan/place_states.h"
#include "zeno/plan/timeline.h"
#include "zeno/train/agreement.h"

namespace zeno::train {
namespace {

// All ranks must choose the same, so the one with the least memory decides.
plan::MemoryLimits least_of_all_ranks(comm::World& world, plan::MemoryLimits mine) {
  plan::MemoryLimits least = mine;
  for (const std::string& bytes :
       world.exchange({reinterpret_cast<const char*>(&mine), sizeof(mine)}, "free memory")) {
    plan::MemoryLimits theirs;
    std::memcpy(&theirs, bytes.data(), sizeof(theirs));
    least.device = std::min(least.device, theirs.device);
    least.host = std::min(least.host, theirs.host);
  }
  return least;
}

// Lets the CPU do a part of the updates of states kept in the host memory of a GPU.
void share_with_cpu(const config::OffloadOptimizerConfig& config, zero::EngineOptions& options,
                    comm::World& world) {
  zero::Policy& policy = options.policy;
  policy.offload.cpu_share = std::max(0.0, config.cpu_share);
  const bool away = config.device != config::OffloadDevice::none && policy.compute != policy.states;
  if (options.device.kind == Device::Kind::cpu || !away || config.cpu_share >= 0) return;
  const int threads = share_of_cores(world.local_size());
  const plan::OffloadRates rates = plan::measure_offload_rates(options.device, threads, policy);
  double share = plan::balanced_cpu_share(rates, policy);
  for (const std::string& bytes :
       world.exchange({reinterpret_cast<const char*>(&share), sizeof(share)}, "share of the CPU")) {
    double theirs;
    std::memcpy(&theirs, bytes.data(), sizeof(theirs));
    share = std::min(share, theirs);  // the same on all ranks: the slowest decides
  }
  policy.offload.cpu_share = share;
  if (log_rank() <= 0)
    log_info(
        "offload: {:.1f} GB/s in each direction and {:.2f} billion updates/s on the CPU at the same time: "
        "the CPU updates {:.0f} % of the states in host memory",
        rates.link / 1e9, rates.updates / 1e9, share * 100);
}

}  // namespace

RunEngine make_engine(const config::TrainConfig& config, const model::ModelConfig& model, int64_t seq_len,
                      comm::World& world, bool trains) {
  const config::RunConfig& run = config.run;
  RunEngine result;
  result.tuning = config::tuning_of(config, trains);
  nn::LayerList layers = model::build_layers(model, seq_len, result.tuning);
  zero::EngineOptions options = config::engine_options(config, config::mesh_of(config, world), seq_len,
                                                       config::device_of(run, world.local_rank()));
  options.policy.trains = trains;
  if (!run.trace.empty()) options.timing = zero::Timing::every;
  if (!trains) options.snapshot_piece = options.snapshot_copies = 0;
  if (world.local_size() < world.size()) options.snapshot_copies *= 2;  // and copies of a partner's state
  if (config.sparse_gradients && options.device.kind == Device::Kind::cuda) {
    log_warning(
        "sparse_gradients: GPUs reduce whole gradients, which gives the same bits; the key has no effect");
  }
  const plan::MemoryLimits limits =
      least_of_all_ranks(world, plan::memory_limits(run, options.device, world.local_size()));
  result.memory_limit = limits.device;
  // First, because updates by the CPU need host memory.
  if (trains) share_with_cpu(config.zero.offload_optimizer, options, world);
  plan::place_states(config, layers, options, limits, trains);
  plan::require_fit(layers, options, limits);
  if (const auto machine = plan::measured_machine(run.cache, options.device.kind);
      machine && trains && machine->links(world.size()))
    result.planned_step_s = plan::predict_step(layers, options, *machine).step_s;
  const model::StartingWeights weights(run.model, config.lora.adapter, model::parameter_table(layers),
                                       uint64_t(run.seed));
  // The matmul algorithms that the engine has chosen on a GPU are saved to a file, so that the next run
  // starts sooner, and with the same algorithms, hence the same bits. Every process times the matmuls that
  // are not in the file, and one process per host writes it. So in a first run processes may choose
  // differently; from the second run on they agree.
  const bool plans = options.device.kind == Device::Kind::cuda;
  const Path plan_file = Path(run.cache) / "matmul_plans.txt";
  if (plans) cuda::load_matmul_plans(plan_file);
  result.engine = std::make_unique<zero::Engine>(std::move(layers), options, world);
  if (plans && world.local_rank() == 0) cuda::save_matmul_plans(plan_file);
  WeightAgreement agreement(result.engine->units().params, world);
  result.engine->load([&](const nn::Parameter& param, int64_t begin, std::span<float> out) {
    weights.read(param, begin, begin + int64_t(out.size()), out.data());
    agreement.add(param, begin, out);
  });
  agreement.agree(run.model, world);
  return result;
}

}  // namespace zeno::train
