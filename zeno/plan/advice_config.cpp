// A chosen setting in the words of a DeepSpeed config.
#include <nlohmann/json.hpp>

#include "zeno/plan/advice.h"

namespace zeno::plan {
namespace {

nlohmann::ordered_json home_of(Tier tier, const std::string& nvme_path) {
  nlohmann::ordered_json json;
  json["device"] = tier == Tier::disk ? "nvme" : "cpu";
  if (tier == Tier::disk) json["nvme_path"] = nvme_path;
  return json;
}

}  // namespace

std::string deepspeed_config(const Option& option, const zero::EngineOptions& options,
                             const std::string& nvme_path) {
  const zero::Policy& policy = options.policy;
  const Setting& setting = option.row.setting;
  const zero::Offload offload = with(policy, setting).offload;
  nlohmann::ordered_json json;
  json["train_micro_batch_size_per_gpu"] = setting.micro_batch;
  json["gradient_accumulation_steps"] = option.micro_batches;
  if (policy.compute == DType::bf16) json["bf16"]["enabled"] = true;
  if (policy.compute == DType::f16) json["fp16"]["enabled"] = true;
  json["data_types"]["grad_accum_dtype"] = std::string(name_of(policy.grad));
  json["zero_optimization"]["stage"] = setting.stage;
  json["zero_optimization"]["overlap_comm"] = setting.overlap;
  const Groups& groups = setting.groups;
  if (groups.ranks > 0) {
    const bool params = groups.sharding == zero::Sharding::params_in_groups;
    json["zero_optimization"][params ? "zero_hpz_partition_size" : "mics_shard_size"] = groups.ranks;
  }
  if (offload.optimizer != Tier::device)
    json["zero_optimization"]["offload_optimizer"] = home_of(offload.optimizer, nvme_path);
  if (offload.params != Tier::device)
    json["zero_optimization"]["offload_param"] = home_of(offload.params, nvme_path);
  if (const int pipe = options.mesh.size(comm::Axis::pipe); pipe > 1) json["pipeline"]["stages"] = pipe;
  if (const int context = options.mesh.size(comm::Axis::context); context > 1)
    json["sequence_parallel_size"] = context;
  constexpr std::array<const char*, 3> kRecompute{"none", "selective", "full"};
  json["zeno"]["recompute"] = kRecompute[size_t(setting.recompute)];
  json["zeno"]["order"] = option.order == zero::Order::vertical ? "vertical" : "horizontal";
  return json.dump(2) + "\n";
}

}  // namespace zeno::plan
