#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/run_flags.h"
#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/model/layers.h"
#include "zeno/train/config_resolve.h"
#include "zeno/train/policy.h"
#include "zeno/train/run_engine.h"
#include "zeno/train/tuning.h"

namespace zeno::cli {
namespace {

nlohmann::ordered_json as_json(const zero::MemoryPlan& plan) {
  nlohmann::ordered_json json;
  json["model_states_bytes"] = plan.model_state_bytes;
  for (Tier tier : kTiers) {
    nlohmann::ordered_json purposes = nlohmann::ordered_json::object();
    for (int p = 0; p < kPurposes; ++p)
      purposes[std::string(name_of(Purpose(p)))] = plan.ledger->booked(tier, Purpose(p));
    purposes["total"] = plan.ledger->booked(tier);
    json["bytes"][std::string(name_of(tier))] = std::move(purposes);
  }
  return json;
}

void run(const RunFlags& flags, bool json) {
  train::ParsedConfig parsed = flags.parse();
  const int world = std::max<int>(1, int(parsed.config.run.ranks));
  const model::ModelConfig model = model::load_config(parsed.config.run.model);
  if (parsed.config.batch.micro_batch == 0 && parsed.config.batch.train_batch == 0)
    parsed.config.batch.micro_batch = 1;
  train::resolve_batch(parsed, world);
  train::resolve_model(parsed, model.hidden, model.layers);
  const int64_t seq = train::sequence_length(parsed.config.run, model.max_positions);
  const nn::LayerList layers = model::build_layers(model, seq, train::tuning_of(parsed.config));
  // As the run would choose, except that a GPU can be planned for where there is none.
  const train::RunConfig& config = parsed.config.run;
  const Device device =
      config.device == train::RunDevice::cuda ? Device{Device::Kind::cuda, 0} : train::device_of(config, 0);
  zero::EngineOptions options = train::engine_options(parsed.config, seq, device);
  const bool automatic = parsed.config.recompute.mode == train::RecomputeMode::automatic ||
                         parsed.config.zero.offload_optimizer.device == train::OffloadDevice::automatic;
  if (automatic) {
    require(device_count(options.device.kind) > 0, ErrorKind::usage,
            "[plan] auto: got no GPU to fill; plan with --recompute none, selective or full and "
            "--offload-optimizer none, cpu or nvme, or on the machine that trains");
    // Ranks beyond the GPUs of this host are taken to run on others.
    const int local = device.kind == Device::Kind::cpu ? world : device_count(device.kind);
    train::place_states(parsed.config, layers, options, world,
                        train::memory_limits(config, device, std::min(world, local)), true);
  }
  const zero::MemoryPlan plan = zero::plan_memory(layers, options, world);
  if (json) {
    fmt::print("{}\n", as_json(plan).dump(2));
    return;
  }
  fmt::print("stage {} on {} ranks, micro-batch {} × {} tokens: bytes of one rank\n{}",
             parsed.config.zero.stage, world, options.shape.batch, seq, plan.ledger->report());
  fmt::print("model states (parameters, gradients, masters, moments): {}\n",
             format_bytes(plan.model_state_bytes));
  if (options.policy.grad == DType::f32 && options.policy.compute != DType::f32) {
    options.policy.grad = options.policy.wire = options.policy.compute;
    const size_t lean = zero::plan_memory(layers, options, world).model_state_bytes;
    fmt::print("of which fp32 accumulation adds {} (data_types.grad_accum_dtype: \"{}\" would save it)\n",
               format_bytes(plan.model_state_bytes - lean), name_of(options.policy.compute));
  }
}

}  // namespace

void add_plan(CLI::App& app) {
  CLI::App* command = app.add_subcommand("plan", "the memory of a run, by purpose, before it starts");
  auto flags = std::make_shared<RunFlags>();
  auto json = std::make_shared<bool>(false);
  flags->add_to(*command);
  command->add_flag("--json", *json, "machine-readable");
  command->callback([flags, json] { run(*flags, *json); });
}

}  // namespace zeno::cli
