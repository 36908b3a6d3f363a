#include "zeno/config/config_resolve.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/math.h"
#include "zeno/base/quantity.h"
#include "zeno/base/utf8.h"
#include "zeno/config/config_keys.h"
#include "zeno/zero/policy.h"

namespace zeno::config {
namespace {

using Kind = ValueOrigin::Kind;
constexpr auto kUsage = ErrorKind::usage;

std::string where(const ParsedConfig& parsed, std::string_view key) {
  const auto found = parsed.origins.find(key);
  return fmt::format("{}: {}", found == parsed.origins.end() ? "default" : found->second.text, key);
}

bool from_flag(const ParsedConfig& parsed, std::string_view key) {
  const auto found = parsed.origins.find(key);
  return found != parsed.origins.end() && found->second.kind == Kind::flag;
}

void resolve_compute_dtype(ParsedConfig& parsed) {
  PrecisionConfig& p = parsed.config.precision;
  require(!(p.fp16_enabled && p.bf16_enabled), kUsage,
          "[config] {}: fp16 and bf16 are both enabled; keep one of them", where(parsed, "bf16.enabled"));
  const DType enabled = p.fp16_enabled ? DType::f16 : p.bf16_enabled ? DType::bf16 : DType::f32;
  const char* key = p.fp16_enabled ? "fp16.enabled" : "bf16.enabled";
  if (!parsed.given("zeno.dtype")) {
    p.compute = enabled;
    if (enabled != DType::f32) parsed.derive("zeno.dtype", fmt::format("{} is true", key));
  } else if (enabled != DType::f32 && enabled != p.compute) {
    require(from_flag(parsed, "zeno.dtype"), kUsage, "[config] {}: got {}, but {} is true; keep one of them",
            where(parsed, "zeno.dtype"), name_of(p.compute), key);
    parsed.notes.push_back(
        fmt::format("{}: overridden by flag --dtype {}", where(parsed, key), name_of(p.compute)));
  }
}

// Of the other dtypes, once that of the computation is known.
void check_precision(ParsedConfig& parsed) {
  PrecisionConfig& p = parsed.config.precision;
  require(!parsed.given("data_types.param_dtype") || p.param_dtype == p.compute, kUsage,
          "[config] {}: got {}, expected {} as set by fp16, bf16 or --dtype",
          where(parsed, "data_types.param_dtype"), name_of(p.param_dtype), name_of(p.compute));
  require(p.grad_accum == DType::f32 || p.grad_accum == p.compute, kUsage,
          "[config] {}: got {}, expected fp32 or the compute dtype {}",
          where(parsed, "data_types.grad_accum_dtype"), name_of(p.grad_accum), name_of(p.compute));
  if (!parsed.given("communication_data_type") && p.communication != p.grad_accum) {
    p.communication = p.grad_accum;
    parsed.derive("communication_data_type", "data_types.grad_accum_dtype");
  }
  const auto matmul = [&] { return where(parsed, "zeno.matmul_dtype"); };
  require(p.matmul == MatmulDtype::automatic || p.compute == DType::bf16, kUsage,
          "[config] {}: got {}, expected auto with compute dtype {}; use --dtype bf16", matmul(),
          text_of(p.matmul), name_of(p.compute));
  require(p.matmul != MatmulDtype::fp8 || parsed.config.run.device != RunDevice::cpu, kUsage,
          "[config] {}: got fp8, expected auto or bf16 on a CPU; use --device cuda", matmul());
  require(p.states == DType::f32 || (p.states == DType::bf16 && p.compute == DType::bf16), kUsage,
          "[config] {}: got {}, expected fp32, or bf16 with compute dtype bf16",
          where(parsed, "zeno.state_dtype"), name_of(p.states));
  if (p.compute != DType::f16) return;
  try {
    validate_loss_scale(p.loss_scale);
  } catch (const Error& error) {
    fail(error.kind(), "[config] {}: {}", parsed.from_file ? where(parsed, "fp16.enabled") : "flags",
         error.what());
  }
}

void resolve_zero(ParsedConfig& parsed) {
  ZeroConfig& zero = parsed.config.zero;
  if (!parsed.given("zero_optimization.overlap_comm")) {
    zero.overlap_comm = overlaps_by_default(int(zero.stage));
    if (zero.overlap_comm) parsed.derive("zero_optimization.overlap_comm", "stage 3");
  }
  require(zero.allgather_bucket_size % 2 == 0, kUsage,
          "[config] {}: got {}, expected an even number of elements",
          where(parsed, "zero_optimization.allgather_bucket_size"), zero.allgather_bucket_size);
  require(zero.shard_group <= 1 || zero.param_group <= 1, kUsage,
          "[config] {} and {}: got both, expected one: groups for all states, or for the parameters only",
          where(parsed, "zero_optimization.mics_shard_size"),
          where(parsed, "zero_optimization.zero_hpz_partition_size"));
  const auto no_effect = [&](const char* key) {
    parsed.notes.push_back(fmt::format("{}: no effect at stage {}", where(parsed, key), zero.stage));
  };
  zero::Policy placed;
  zero::apply_stage(placed, int(zero.stage));
  const bool shards_states = !placed.optimizer.empty(), shards_params = !placed.params.empty();
  if (zero.shard_group > 1 && !shards_states) no_effect("zero_optimization.mics_shard_size");
  if (zero.param_group > 1 && !shards_params) no_effect("zero_optimization.zero_hpz_partition_size");
  if (zero.quantized_weights && !shards_params) no_effect("zero_optimization.zero_quantized_weights");
  if (zero.quantized_gradients && !shards_states) no_effect("zero_optimization.zero_quantized_gradients");
  if (zero.quantized_gradients && shards_states && parsed.given("communication_data_type")) {
    parsed.notes.push_back(
        fmt::format("{}: no effect with zero_quantized_gradients", where(parsed, "communication_data_type")));
  }
  if (shards_params) return;
  for (const auto& [key, origin] : parsed.origins) {
    const bool stage3 = key.starts_with("zero_optimization.stage3_");
    if (stage3 && find_key(key)->status == KeyStatus::honoured) {
      parsed.notes.push_back(fmt::format("{}: {}: no effect at stage {}", origin.text, key, zero.stage));
    }
  }
}

void resolve_offload(ParsedConfig& parsed) {
  ZeroConfig& zero = parsed.config.zero;
  OffloadOptimizerConfig& optimizer = zero.offload_optimizer;
  OffloadParamConfig& param = zero.offload_param;
  if (param.device == OffloadDevice::automatic)
    param.device = OffloadDevice::none;  // as where it is not given
  if (param.device != OffloadDevice::none && !zero::shards_parameters(int(zero.stage)))
    parsed.notes.push_back(fmt::format("{}: at stage {}, parameters leave the device only with one rank",
                                       where(parsed, "zero_optimization.offload_param.device"), zero.stage));
  // One set of folders serves both.
  constexpr const char* kParamPath = "zero_optimization.offload_param.nvme_path";
  const bool wanted = param.device == OffloadDevice::nvme || !param.nvme_path.empty();
  if (wanted && !optimizer.nvme_path.empty() && param.nvme_path != optimizer.nvme_path) {
    if (!param.nvme_path.empty())
      parsed.notes.push_back(
          fmt::format("{} {} is replaced by {} {}", where(parsed, kParamPath), param.nvme_path,
                      where(parsed, "zero_optimization.offload_optimizer.nvme_path"), optimizer.nvme_path));
    param.nvme_path = optimizer.nvme_path;
    parsed.derive(kParamPath, "offload_optimizer.nvme_path");
  }
  const auto needs_path = [&](OffloadDevice device, const std::string& path, const char* key) {
    require(device != OffloadDevice::nvme || !path.empty(), kUsage,
            "[config] {}: device nvme requires nvme_path; set it or give --nvme-path", where(parsed, key));
  };
  needs_path(optimizer.device, optimizer.nvme_path, "zero_optimization.offload_optimizer.device");
  needs_path(param.device, param.nvme_path, "zero_optimization.offload_param.device");
}

void resolve_optimizer(ParsedConfig& parsed) {
  OptimizerConfig& o = parsed.config.optimizer;
  const auto is = [&](std::string_view name) { return equals_ignoring_case(o.type, name); };
  // AdamW is always decoupled; Adam too, unless adam_w_mode says no. torch_adam picks an implementation, not
  // another algorithm.
  const bool adam = is("Adam") || is("AdamW");
  if (adam) {
    o.kind = is("AdamW") || o.adam_w_mode ? OptimizerKind::adamw : OptimizerKind::adam;
    if (is("AdamW") && !o.adam_w_mode) {
      parsed.warnings.push_back(
          fmt::format("{}: no effect with type AdamW, which always decouples weight decay",
                      where(parsed, "optimizer.params.adam_w_mode")));
    }
  } else if (is("SGD")) {
    o.kind = OptimizerKind::sgd;
  } else {
    o.kind = OptimizerKind::lion;
  }
  if (adam && o.torch_adam && o.kind == OptimizerKind::adamw &&
      !parsed.given("optimizer.params.weight_decay")) {
    o.weight_decay = 0.01;
    parsed.derive("optimizer.params.weight_decay", "default of torch.optim.AdamW");
  }
  require(o.betas[0] < 1 && o.betas[1] < 1, kUsage, "[config] {}: got [{}, {}], expected numbers below 1",
          where(parsed, "optimizer.params.betas"), o.betas[0], o.betas[1]);
}

void resolve_warmup(ParsedConfig& parsed) {
  ScheduleConfig& s = parsed.config.schedule;
  constexpr const char* kMaxLr = "scheduler.params.warmup_max_lr";
  constexpr const char* kWarmupSteps = "scheduler.params.warmup_num_steps";
  const bool plain = s.type == ScheduleType::warmup_lr || s.type == ScheduleType::warmup_decay_lr;
  require(
      s.warmup < 1 || s.warmup == std::floor(s.warmup), kUsage,
      "[config] {}: got {}, expected a whole number of steps, or a number below 1 for a fraction of the run",
      where(parsed, kWarmupSteps), s.warmup);
  if (s.warmup >= 1) s.warmup_steps = int64_t(s.warmup);
  if (!plain && s.type != ScheduleType::warmup_cosine_lr) return;
  if (!parsed.given(kWarmupSteps) && !parsed.is_auto(kWarmupSteps)) {
    s.warmup = 1000;
    s.warmup_steps = 1000;
    parsed.derive(kWarmupSteps, fmt::format("default of {}", text_of(s.type)));
  }
  if (!plain) return;
  const bool lr_flag = from_flag(parsed, "optimizer.params.lr") && !from_flag(parsed, kMaxLr);
  if (lr_flag && parsed.given(kMaxLr)) {
    parsed.warnings.push_back(fmt::format("{}: overridden by flag --lr", where(parsed, kMaxLr)));
  }
  const bool no_lr = !parsed.given("optimizer.params.lr");
  const bool follows_lr = s.type == ScheduleType::warmup_lr || parsed.is_auto(kMaxLr) || no_lr;
  if (lr_flag || (!parsed.given(kMaxLr) && follows_lr)) {
    s.warmup_max_lr = s.lr;
    parsed.derive(kMaxLr, "optimizer.params.lr");
  } else if (!parsed.given(kMaxLr) && s.warmup_max_lr != s.lr) {
    parsed.warnings.push_back(
        fmt::format("{}: the rate rises to {}, DeepSpeed's default, not to optimizer.params.lr {}; set {}",
                    where(parsed, "scheduler.type"), s.warmup_max_lr, s.lr, kMaxLr));
  }
}

void resolve_schedule(ParsedConfig& parsed) {
  ScheduleConfig& s = parsed.config.schedule;
  s.lr = parsed.config.optimizer.lr;
  resolve_warmup(parsed);
  if (s.type == ScheduleType::one_cycle) {
    require(parsed.given("scheduler.params.cycle_min_lr") && parsed.given("scheduler.params.cycle_max_lr"),
            kUsage, "[config] {}: OneCycle requires cycle_min_lr and cycle_max_lr",
            where(parsed, "scheduler.type"));
    if (!parsed.given("scheduler.params.cycle_momentum")) {
      parsed.warnings.push_back(fmt::format("{}: momentum is not cycled (DeepSpeed does by default)",
                                            where(parsed, "scheduler.type")));
    }
  }
  const bool own_rates = s.type == ScheduleType::one_cycle || s.type == ScheduleType::lr_range_test;
  if (own_rates && from_flag(parsed, "optimizer.params.lr")) {
    parsed.warnings.push_back(fmt::format("flag --lr: no effect with schedule {}", text_of(s.type)));
  }
  if (parsed.config.run.steps > 0) resolve_steps(parsed, parsed.config.run.steps);
}

// Evaluation needs something to evaluate on, once.
void resolve_eval(ParsedConfig& parsed) {
  const EvalConfig& eval = parsed.config.eval;
  require(eval.data.empty() || eval.split == 0, kUsage,
          "[config] {}: got evaluation files and a split, expected one of them; leave out --eval-split",
          where(parsed, "zeno.eval_split"));
  if (!eval.data.empty() || eval.split > 0) return;
  const auto needs_data = [&](bool wanted, const char* key) {
    require(!wanted, kUsage,
            "[config] {}: got no evaluation data, expected some; give --eval-data FILE or --eval-split PART",
            where(parsed, key));
  };
  needs_data(eval.keep_best, "zeno.keep_best");
  needs_data(eval.early_stopping > 0, "zeno.early_stopping");
  needs_data(eval.every > 0, "zeno.eval_every");
  needs_data(eval.on_start, "zeno.eval_on_start");
}

void resolve_recompute(ParsedConfig& parsed) {
  RecomputeConfig& r = parsed.config.recompute;
  const char* key = "activation_checkpointing.number_checkpoints";
  if (parsed.given("zeno.recompute")) {
    const bool otherwise = r.mode != RecomputeMode::full && (r.number_checkpoints > 0 || r.enabled);
    if (otherwise)
      parsed.notes.push_back(fmt::format("{} is replaced by {} {}",
                                         where(parsed, r.enabled ? "activation_checkpointing.enabled" : key),
                                         parsed.origins.at("zeno.recompute").text, text_of(r.mode)));
    return;
  }
  if (r.number_checkpoints > 0) {
    r.mode = RecomputeMode::full;
    parsed.derive("zeno.recompute", key);
  } else if (r.enabled) {
    r.mode = RecomputeMode::full;
    parsed.derive("zeno.recompute", "activation_checkpointing.enabled");
  } else if (r.every > 1) {
    r.mode = RecomputeMode::full;
    parsed.derive("zeno.recompute", "zeno.recompute_every");
  }
}

// Values that were given but have no effect in this run. They do no harm, but whoever gave one expected
// something of it.
void note_idle_values(ParsedConfig& parsed) {
  const TrainConfig& config = parsed.config;
  const RunConfig& run = config.run;
  const auto& optimizer = config.zero.offload_optimizer.device;
  const bool disk = run.choose || optimizer == OffloadDevice::nvme || optimizer == OffloadDevice::automatic ||
                    config.zero.offload_param.device == OffloadDevice::nvme;
  const bool blocks = run.choose || config.recompute.mode == RecomputeMode::full ||
                      config.recompute.mode == RecomputeMode::automatic;
  const std::string no_blocks =
      fmt::format("with recompute {}: only full recompute keeps checkpoints", text_of(config.recompute.mode));
  const bool evaluates = !config.eval.data.empty() || config.eval.split > 0;
  const struct {
    const char* key;
    bool idle;
    std::string_view why;
  } values[] = {
      {"zeno.epochs", run.steps > 0, "because steps sets the length of the run"},
      {"zeno.keep_last", run.save_every == 0, "without save_every, as there are no checkpoints"},
      {"zeno.keep_every", run.save_every == 0, "without save_every, as there are no checkpoints"},
      {"zeno.peer_snapshot_dir", run.peer_snapshot == 0, "without peer_snapshot"},
      {"zeno.order", run.reproducible && run.order == MicroBatchOrder::horizontal,
       "with reproducible, which goes layer by layer"},
      {"sparse_gradients", config.sparse_gradients && run.device == RunDevice::cuda,
       "on GPUs, which reduce whole gradients"},
      {"zero_optimization.offload_optimizer.cpu_share", run.device == RunDevice::cpu,
       "on a CPU, which updates all states anyway"},
      {"zeno.recompute_every", !blocks, no_blocks},
      {"activation_checkpointing.cpu_checkpointing", config.recompute.offload && !blocks, no_blocks},
      {"zero_optimization.offload_optimizer.nvme_path", !disk, "if nothing is kept on disk"},
      {"zeno.eval_max_samples", !evaluates, "without eval_data or eval_split"},
      {"zeno.best_metric", !evaluates, "without eval_data or eval_split"},
      {"zeno.early_stopping_delta", config.eval.early_stopping == 0, "without early_stopping"},
  };
  for (const auto& value : values)
    if (value.idle && parsed.given(value.key))
      parsed.notes.push_back(fmt::format("{}: no effect {}", where(parsed, value.key), value.why));
}

void check_native_reduction(ParsedConfig& parsed) {
  if (parsed.config.run.reduction != ReductionMode::native) return;
  require(
      !parsed.config.run.reproducible, kUsage,
      "[config] {}: got native with reproducible, expected tree, as its order of additions depends on the "
      "ranks; leave out one of the two",
      where(parsed, "zeno.reduction"));
  parsed.notes.push_back(fmt::format(
      "{}: native: NCCL, or MPI between CPU hosts, sums gradients in an order of its own, so the "
      "promise of same bits is off; ranks that are threads, or on one host without GPUs, sum as ever",
      where(parsed, "zeno.reduction")));
}

// Sizes of memory keep their text; here they are only checked.
void check_sizes(const ParsedConfig& parsed) {
  const RunConfig& run = parsed.config.run;
  for (const auto& [key, text] :
       {std::pair{"zeno.device_mem", run.device_mem}, std::pair{"zeno.host_mem", run.host_mem}}) {
    require(text.empty() || parse_bytes(text).has_value(), kUsage,
            "[config] {}: got '{}', expected a size with its unit, such as 80GB or 80GiB, of at most 1EiB",
            where(parsed, key), shortened(text, 40));
  }
}

}  // namespace

void resolve_values(ParsedConfig& parsed) {
  check_sizes(parsed);
  resolve_compute_dtype(parsed);
  if (!parsed.is_auto("zeno.dtype")) check_precision(parsed);
  resolve_zero(parsed);
  resolve_offload(parsed);
  resolve_optimizer(parsed);
  resolve_schedule(parsed);
  resolve_eval(parsed);
  resolve_recompute(parsed);
  note_idle_values(parsed);
  check_native_reduction(parsed);
}

bool overlaps_by_default(int stage) { return zero::shards_parameters(stage); }

void resolve_device(ParsedConfig& parsed, Device::Kind kind) {
  if (!parsed.is_auto("zeno.dtype")) return;
  const bool gpu = kind == Device::Kind::cuda;
  parsed.config.precision.compute = gpu ? DType::bf16 : DType::f32;
  parsed.origins.insert_or_assign(
      "zeno.dtype", ValueOrigin{Kind::by_default, gpu ? "default on a GPU" : "default on a CPU"});
  check_precision(parsed);
}

void resolve_model(ParsedConfig& parsed, int64_t hidden_size, int64_t blocks) {
  constexpr int64_t kLargest = 1'000'000'000;
  require(hidden_size > 0 && hidden_size <= kLargest && blocks > 0, ErrorKind::data,
          "[config] model: got hidden size {} and {} blocks, expected both positive", hidden_size, blocks);
  ZeroConfig& zero = parsed.config.zero;
  const auto set_auto = [&](std::string_view key, int64_t& field, int64_t value, std::string_view why) {
    if (!parsed.is_auto(key)) return;
    field = value;
    parsed.derive(key, why);
  };
  const int64_t square = hidden_size * hidden_size;
  set_auto("zero_optimization.reduce_bucket_size", zero.reduce_bucket_size, square, "auto: hidden²");
  set_auto("zero_optimization.stage3_prefetch_bucket_size", zero.prefetch_bucket_size,
           square / 10 * 9 + square % 10 * 9 / 10, "auto: 0.9 hidden²");
  set_auto("zero_optimization.stage3_param_persistence_threshold", zero.param_persistence_threshold,
           10 * hidden_size, "auto: 10 hidden");
  RecomputeConfig& recompute = parsed.config.recompute;
  if (recompute.number_checkpoints > 0 && !parsed.given("zeno.recompute_every")) {
    recompute.every = std::max<int64_t>(1, div_ceil(blocks, std::min(recompute.number_checkpoints, blocks)));
    parsed.derive("zeno.recompute_every", "blocks / number_checkpoints");
  }
}

void resolve_steps(ParsedConfig& parsed, int64_t total_steps) {
  ScheduleConfig& s = parsed.config.schedule;
  constexpr const char* kTotal = "scheduler.params.total_num_steps";
  if (!parsed.given(kTotal)) {
    s.total_steps = total_steps;
    parsed.derive(kTotal, "steps of the run");
  }
  if (s.warmup > 0 && s.warmup < 1) s.warmup_steps = int64_t(std::ceil(s.warmup * double(s.total_steps)));
  if (needs_total_steps(s.type) && s.warmup_steps > s.total_steps) {
    parsed.warnings.push_back(fmt::format("{}: {} warm-up steps are more than the {} steps of the schedule",
                                          where(parsed, "scheduler.params.warmup_num_steps"), s.warmup_steps,
                                          s.total_steps));
  }
}

}  // namespace zeno::config
