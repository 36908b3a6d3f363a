// Rows of the batch sizes, gradients, fp16, bf16 and data types.
#include "zeno/config/config_table.h"

namespace zeno::config {
namespace {

using enum KeyType;
constexpr auto kPrecision = &TrainConfig::precision;
constexpr auto kScale = &PrecisionConfig::loss_scale;

void add_batch(TableBuilder& table) {
  constexpr auto kBatch = &TrainConfig::batch;
  table
      .key<kBatch, &BatchConfig::train_batch>("train_batch_size",
                                              "samples per step = micro × accumulation × ranks")
      .range(1, 1e12)
      .set_flag("--train-batch")
      .set_default("null");
  table
      .key<kBatch, &BatchConfig::micro_batch>("train_micro_batch_size_per_gpu",
                                              "samples per rank and micro-batch")
      .range(1, 1e6)
      .set_flag("--micro-batch")
      .set_default("null");
  table.key<kBatch, &BatchConfig::grad_accum>("gradient_accumulation_steps", "micro-batches per step")
      .range(1, 1e6)
      .set_flag("--grad-accum")
      .set_default("null");
  table.refused("managed_gradient_accumulation", boolean, "true",
                "the engine controls gradient accumulation");
}

void add_gradients(TableBuilder& table) {
  table
      .key<&TrainConfig::optimizer, &OptimizerConfig::gradient_clipping>(
          "gradient_clipping", "clip gradients to this global L2 norm; 0: off")
      .range(0)
      .set_flag("--clip");
  table.key<&TrainConfig::sparse_gradients>("sparse_gradients",
                                            "reduce only the touched rows of embedding gradients");
  table.key<kPrecision, &PrecisionConfig::communication>(
      "communication_data_type", "dtype of the gradient reduction; defaults to grad_accum_dtype");
  table
      .refused("gradient_allreduce_op", choice, "\"mean\"",
               "Zeno divides the loss by the number of loss tokens over all ranks, so a sum has no meaning")
      .set_choices({"mean", "sum"});
  table.warned("prescale_gradients", boolean, "false",
               "gradients are divided once, by the number of loss tokens");
  table.warned("gradient_predivide_factor", number, "1.0",
               "gradients are divided once, by the number of loss tokens");
  table.no_effect("seq_parallel_communication_data_type", dtype, "\"fp32\"",
                  "applies to sequence parallelism only");
}

// Written by people who come from other trainers. DeepSpeed has never read them.
void add_foreign_scale_keys(TableBuilder& table) {
  table.warned("dynamic_loss_scale", boolean, "null",
               "not a DeepSpeed key: loss_scale 0 makes the scale dynamic");
  table.warned("fp16_scale_tolerance", number, "null", "a fairseq option that DeepSpeed does not have");
}

void add_fp16(TableBuilder& table) {
  table.block("fp16");
  table.key<kPrecision, &PrecisionConfig::fp16_enabled>("enabled", "train in fp16 with loss scaling");
  table.key<kPrecision, kScale, &LossScaleConfig::loss_scale>("loss_scale", "fixed scale; 0: dynamic")
      .range(0);
  table.key<kPrecision, kScale, &LossScaleConfig::initial_scale_power>(
      "initial_scale_power", "dynamic: the initial scale is 2 to this power");
  table.key<kPrecision, kScale, &LossScaleConfig::window>("loss_scale_window",
                                                          "steps without overflow before the scale doubles");
  table.key<kPrecision, kScale, &LossScaleConfig::hysteresis>("hysteresis",
                                                              "overflows before the scale halves");
  table.key<kPrecision, kScale, &LossScaleConfig::consecutive_hysteresis>(
      "consecutive_hysteresis", "a step without overflow resets the hysteresis");
  table.key<kPrecision, kScale, &LossScaleConfig::min_loss_scale>("min_loss_scale",
                                                                  "an overflow at this scale ends the run");
  table.no_effect("auto_cast", boolean, "false", "inputs are token ids: there is nothing to cast");
  table.refused("fp16_master_weights_and_grads", boolean, "false", "master weights are fp32");
  table.warned("opt_level", text, "null", "an apex option, no longer a DeepSpeed key");
  add_foreign_scale_keys(table);
}

void add_bf16(TableBuilder& table) {
  table.block("bf16");
  table.key<kPrecision, &PrecisionConfig::bf16_enabled>("enabled", "train in bf16 with fp32 masters");
  table.no_effect("immediate_grad_update", boolean, "false",
                  "gradients are accumulated as they are produced");
  table.warned("check_grad_overflow", boolean, "true", "overflow is checked in every dtype");
  table.refused("bf16_master_weights_and_grads", boolean, "false",
                "use zeno.state_dtype (--state-dtype bf16)");
  table.refused("bf16_optimizer_states", boolean, "false", "use zeno.state_dtype (--state-dtype bf16)");
  constexpr std::string_view kNoScale = "bf16 needs no loss scale; the key belongs in fp16";
  table.warned("auto_cast", boolean, "null", kNoScale);
  table.warned("loss_scale", number, "null", kNoScale);
  table.warned("initial_scale_power", integer, "null", kNoScale);
  table.warned("loss_scale_window", integer, "null", kNoScale);
  table.warned("hysteresis", integer, "null", kNoScale);
  table.warned("consecutive_hysteresis", boolean, "null", kNoScale);
  table.warned("min_loss_scale", number, "null", kNoScale);
  table.warned("opt_level", text, "null", "an apex option");
  add_foreign_scale_keys(table);
  table.top();
  table.open_block("bfloat16", KeyStatus::renamed, "the old name of bf16").rename_to = {"bf16"};
  table.open_block("bfp16", KeyStatus::warned, "DeepSpeed does not know this block either; use bf16");
}

}  // namespace

void add_precision_keys(TableBuilder& table) {
  table.top();
  add_batch(table);
  add_gradients(table);
  add_fp16(table);
  add_bf16(table);
  table.block("data_types").strict = false;
  table.key<kPrecision, &PrecisionConfig::grad_accum>(
      "grad_accum_dtype", "dtype of gradient accumulation (DeepSpeed: the model's dtype)");
  table.key<kPrecision, &PrecisionConfig::param_dtype>("param_dtype", "must agree with fp16 / bf16")
      .set_default("null");
  table.no_effect("buffer_dtype", dtype, "null", "the models have no buffers to cast");
  table.top();
  table.open_block("amp", KeyStatus::refused, "apex amp does not work with ZeRO; use bf16 or fp16");
  table.block("torch_autocast", KeyStatus::refused,
              "autocast changes the results; remove it and use bf16 or fp16");
  table.inside("enabled", boolean, "false");
  table.inside("dtype", dtype, "null");
  table.inside("lower_precision_safe_modules", texts, "null");
  table.top();
}

}  // namespace zeno::config
