// Rows of "optimizer" and "scheduler".
#include "zeno/config/config_table.h"

namespace zeno::config {
namespace {

using enum KeyType;
constexpr auto kOptimizer = &TrainConfig::optimizer;
constexpr auto kSchedule = &TrainConfig::schedule;
constexpr auto kCycle = &ScheduleConfig::one_cycle;
constexpr auto kRange = &ScheduleConfig::range_test;
constexpr double kManySteps = 1e15;  // sums and products of step counts stay exact

void add_optimizer_params(TableBuilder& table) {
  table.block("optimizer.params");
  table.key<kOptimizer, &OptimizerConfig::lr>("lr", "learning rate; 2e-4 for adapters")
      .range(0)
      .set_flag("--lr");
  table.key<kOptimizer, &OptimizerConfig::betas>("betas", "decay rates of the moments")
      .range(0, 1)
      .set_only_with({"Adam", "AdamW", "Lion"});
  table.key<kOptimizer, &OptimizerConfig::eps>("eps", "added to the square root of the second moment")
      .range(0)
      .set_only_with({"Adam", "AdamW"});
  table.key<kOptimizer, &OptimizerConfig::weight_decay>("weight_decay", "weight decay")
      .range(0)
      .set_flag("--weight-decay");
  table.key<kOptimizer, &OptimizerConfig::momentum>("momentum", "momentum of SGD")
      .range(0, 1)
      .set_only_with({"SGD"});
  table
      .key<kOptimizer, &OptimizerConfig::bias_correction>("bias_correction",
                                                          "correct the bias of moments that start at zero")
      .set_only_with({"Adam", "AdamW"});
  table
      .key<kOptimizer, &OptimizerConfig::adam_w_mode>(
          "adam_w_mode",
          "false with type Adam: weight decay is added to the gradient; AdamW always decouples it")
      .set_only_with({"Adam", "AdamW"});
  table
      .key<kOptimizer, &OptimizerConfig::torch_adam>(
          "torch_adam", "same algorithm, with PyTorch's default weight_decay (0.01 if decoupled, else 0)")
      .set_only_with({"Adam", "AdamW"});
  table.refused("max_grad_norm", number, "null",
                "DeepSpeed refuses it too: set the top-level gradient_clipping");
  table.refused("amsgrad", boolean, "false", "not supported");
  table.refused("maximize", boolean, "false", "not supported");
  table.refused("nesterov", boolean, "false", "not supported");
  table.refused("dampening", number, "0", "not supported");
  table.refused("fp32_optimizer_states", boolean, "true", "use zeno.state_dtype (--state-dtype bf16)");
  for (const char* name : {"fused", "foreach", "capturable", "differentiable", "set_grad_none"}) {
    table.no_effect(name, boolean, "null", "the update is already one fused pass");
  }
}

// Parameters of optimizers that Zeno refuses by type: known, so that the message is about the type.
void add_foreign_optimizer_params(TableBuilder& table) {
  constexpr std::string_view kForeign = "belongs to an optimizer that Zeno does not have";
  for (const char* name : {"max_coeff", "min_coeff", "muon_lr", "adam_lr", "freeze_step", "var_freeze_step",
                           "var_update_scaler", "local_step_scaler", "local_step_clipper", "coeff_beta",
                           "factor_max", "factor_min", "factor_threshold", "lr_decay"}) {
    table.refused(name, number, "null", kForeign);
  }
  table.refused("ns_method", text, "null", kForeign);
  table.refused("comm_backend_name", text, "null", kForeign);
  table.refused("cuda_aware", boolean, "false", kForeign);
  table.refused("eps_inside_sqrt", boolean, "false", kForeign);
}

void add_own_schedules(TableBuilder& table) {
  table
      .key<kSchedule, &ScheduleConfig::warmup>(
          "warmup_num_steps",
          "warm-up steps, or, below 1, a fraction of the run; defaults to 0.03, with --config to 0, or to "
          "1000 for DeepSpeed's schedules")
      .range(0, kManySteps)
      .set_flag("--warmup")
      .set_auto("0")
      .set_only_with({"constant", "linear", "cosine", "wsd", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"});
  table
      .key<kSchedule, &ScheduleConfig::total_steps>(
          "total_num_steps", "length of the schedule in steps; defaults to the steps of the run")
      .range(1, kManySteps)
      .set_default("null")
      .set_only_with({"linear", "cosine", "wsd", "WarmupDecayLR", "WarmupCosineLR"});
  table.key<kSchedule, &ScheduleConfig::min_ratio>("min_ratio", "final rate as a fraction of lr")
      .range(0, 1)
      .set_flag("--min-lr-ratio")
      .set_only_with({"linear", "cosine", "wsd"});
  table
      .key<kSchedule, &ScheduleConfig::decay_steps>("decay_steps",
                                                    "steps of the decay; 0: a tenth of the schedule")
      .range(0, kManySteps)
      .set_only_with({"wsd"});
}

void add_warmup_schedules(TableBuilder& table) {
  const std::vector<std::string> plain = {"WarmupLR", "WarmupDecayLR"};
  table.key<kSchedule, &ScheduleConfig::warmup_min_lr>("warmup_min_lr", "rate at the start of the warm-up")
      .range(0)
      .set_only_with(plain);
  table
      .key<kSchedule, &ScheduleConfig::warmup_max_lr>(
          "warmup_max_lr",
          "rate after the warm-up; defaults to lr for WarmupLR and to 0.001 for WarmupDecayLR")
      .range(0)
      .set_only_with(plain);
  table.key<kSchedule, &ScheduleConfig::warmup_type>("warmup_type", "shape of the warm-up")
      .set_only_with({"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"});
  table
      .key<kSchedule, &ScheduleConfig::warmup_min_ratio>("warmup_min_ratio",
                                                         "initial rate as a fraction of lr")
      .range(0, 1)
      .set_only_with({"WarmupCosineLR"});
  table.key<kSchedule, &ScheduleConfig::cos_min_ratio>("cos_min_ratio", "final rate as a fraction of lr")
      .range(0, 1)
      .set_only_with({"WarmupCosineLR"});
  table.no_effect("last_batch_iteration", integer, "-1", "resuming restores the step");
}

void add_cycle_schedules(TableBuilder& table) {
  const std::vector<std::string> cycle = {"OneCycle"}, range = {"LRRangeTest"};
  table.key<kSchedule, kCycle, &OneCycleConfig::min_lr>("cycle_min_lr", "lowest rate")
      .range(0)
      .set_only_with(cycle);
  table.key<kSchedule, kCycle, &OneCycleConfig::max_lr>("cycle_max_lr", "highest rate")
      .range(0)
      .set_only_with(cycle);
  table.key<kSchedule, kCycle, &OneCycleConfig::first_steps>("cycle_first_step_size", "steps of the rise")
      .range(1, kManySteps)
      .set_only_with(cycle);
  table
      .key<kSchedule, kCycle, &OneCycleConfig::second_steps>("cycle_second_step_size",
                                                             "steps of the fall; 0: as many as of the rise")
      .range(0, kManySteps)
      .set_only_with(cycle);
  table
      .key<kSchedule, kCycle, &OneCycleConfig::decay_steps>("decay_step_size",
                                                            "steps per decay after the cycle")
      .range(0, kManySteps)
      .set_only_with(cycle);
  table.key<kSchedule, kCycle, &OneCycleConfig::decay_rate>("decay_lr_rate", "decay after the cycle")
      .range(0)
      .set_only_with(cycle);
  table.no_effect("cycle_first_stair_count", integer, "0", "DeepSpeed does not read it either")
      .set_only_with(cycle);
  table.no_effect("cycle_second_stair_count", integer, "null", "DeepSpeed does not read it either")
      .set_only_with(cycle);
  constexpr std::string_view kMomentum = "momentum is not cycled";
  table.warned("cycle_momentum", boolean, "false", kMomentum).set_only_with(cycle);
  for (const char* name : {"cycle_min_mom", "cycle_max_mom", "decay_mom_rate"}) {
    table.warned(name, number, "null", kMomentum).set_only_with(cycle);
  }
  table.key<kSchedule, kRange, &RangeTestConfig::min_lr>("lr_range_test_min_lr", "initial rate")
      .range(0)
      .set_only_with(range);
  table.key<kSchedule, kRange, &RangeTestConfig::step_size>("lr_range_test_step_size", "steps per increase")
      .range(1, kManySteps)
      .set_only_with(range);
  table
      .key<kSchedule, kRange, &RangeTestConfig::step_rate>("lr_range_test_step_rate",
                                                           "increase, as a multiple of the initial rate")
      .range(0)
      .set_only_with(range);
  table
      .key<kSchedule, kRange, &RangeTestConfig::staircase>("lr_range_test_staircase",
                                                           "increase in discrete steps")
      .set_only_with(range);
}

}  // namespace

void add_optimizer_keys(TableBuilder& table) {
  table.block("optimizer");
  table
      .key<kOptimizer, &OptimizerConfig::type>(
          "type", "Adam is AdamW unless adam_w_mode is false; other optimizers are refused")
      .set_choices({"Adam", "AdamW", "SGD", "Lion"})
      .set_advice("another optimizer would change the results; write AdamW to train with AdamW")
      .set_flag("--optimizer");
  table.no_effect("legacy_fusion", boolean, "false", "the update is already one fused pass");
  add_optimizer_params(table);
  add_foreign_optimizer_params(table);
  table.block("scheduler");
  table
      .key<kSchedule, &ScheduleConfig::type>(
          "type", "learning-rate schedule; defaults to cosine, with --config to constant")

      .set_flag("--schedule");
  table.block("scheduler.params");
  add_own_schedules(table);
  add_warmup_schedules(table);
  add_cycle_schedules(table);
  table.top();
  table.no_effect("zero_allow_untested_optimizer", boolean, "false", "Zeno only has its own optimizers");
  table.no_effect("zero_force_ds_cpu_optimizer", boolean, "true", "Zeno only has its own optimizers");
}

}  // namespace zeno::config
