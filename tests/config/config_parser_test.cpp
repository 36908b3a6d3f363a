#include "zeno/config/config_parser.h"

#include <gtest/gtest.h>

#include "tests/config/mentions.h"
#include "zeno/base/error.h"
#include "zeno/config/config_resolve.h"

namespace zeno::config {
namespace {

ParsedConfig parse_text(std::string_view text, std::vector<FlagOverride> flags = {}) {
  return parse_config({parse_relaxed_json(text, "ds.json"), "ds.json"}, flags);
}

std::string error_in_text(std::string_view text, std::vector<FlagOverride> flags = {}) {
  try {
    parse_text(text, std::move(flags));
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.kind()), 2);
    return error.what();
  }
  return "no error";
}

TEST(ConfigParser, DefaultsWithoutAFile) {
  const ParsedConfig parsed = load_config("", {});
  const TrainConfig& c = parsed.config;
  EXPECT_EQ(c.zero.stage, 0);
  EXPECT_FALSE(c.zero.overlap_comm);
  EXPECT_EQ(c.zero.reduce_bucket_size, 500'000'000);
  EXPECT_EQ(c.optimizer.kind, OptimizerKind::adamw);
  EXPECT_EQ(c.optimizer.gradient_clipping, 1.0);
  EXPECT_EQ(c.precision.compute, DType::f32);
  EXPECT_EQ(c.precision.grad_accum, DType::f32);
  EXPECT_EQ(c.precision.communication, DType::f32);
  EXPECT_TRUE(parsed.warnings.empty());
  EXPECT_TRUE(parsed.notes.empty());
}

TEST(ConfigParser, OriginsOfEveryKind) {
  ParsedConfig parsed = parse_text(R"({
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "betas": "auto"}},
    "zero_optimization": {"stage": 3}
  })",
                                   {{"optimizer.params.lr", "3e-4", "--lr"}});
  resolve_batch(parsed, 2);
  EXPECT_EQ(parsed.config.optimizer.lr, 3e-4);
  EXPECT_EQ(parsed.config.schedule.lr, 3e-4);
  EXPECT_EQ(parsed.origins.at("optimizer.params.lr").text, "flag --lr");
  EXPECT_EQ(parsed.origins.at("zero_optimization.stage").text, "ds.json:4");
  EXPECT_TRUE(parsed.is_auto("optimizer.params.betas"));
  EXPECT_EQ(parsed.origins.at("zero_optimization.overlap_comm").text, "derived: stage 3");
  EXPECT_EQ(parsed.origins.count("gradient_clipping"), 0u);
  const std::string table = print_config(parsed);
  for (const char* line : {"zero_optimization.stage", "flag --lr", "ds.json:4", "derived: stage 3", "default",
                           "derived: micro × accumulation × ranks", "0.0003"}) {
    EXPECT_NE(table.find(line), std::string::npos) << line << "\n" << table;
  }
  EXPECT_EQ(table.find("OneCycle"), std::string::npos);
  EXPECT_EQ(table.find("cycle_min_lr"), std::string::npos);  // of another schedule
}

TEST(ConfigParser, SameConfigInEveryForm) {
  const char* json =
      R"({"train_batch_size": 8, "zero_optimization": {"stage": 2, "reduce_bucket_size": 500000000}})";
  const char* relaxed =
      "{ train_batch_size: 8 // all\n zero_optimization: { stage: '2', reduce_bucket_size: 5e8, }, }";
  // base64 of the JSON text above
  const char* base64 =
      "eyJ0cmFpbl9iYXRjaF9zaXplIjogOCwgInplcm9fb3B0aW1pemF0aW9uIjogeyJzdGFnZSI6IDIsICJyZWR1Y2VfYnVja2V0X3Npem"
      "UiOiA1MDAwMDAw"
      "MDB9fQ==";
  for (const ParsedConfig& p : {parse_text(json), parse_text(relaxed), load_config(base64, {})}) {
    EXPECT_EQ(p.config.batch.train_batch, 8);
    EXPECT_EQ(p.config.zero.stage, 2);
    EXPECT_EQ(p.config.zero.reduce_bucket_size, 500'000'000);
  }
  EXPECT_NE(error_in_text("{train_batch_size: 8, train_batch_size: 8}").find("twice"), std::string::npos);
}

TEST(ConfigParser, UnknownKeys) {
  EXPECT_NE(
      error_in_text("{\"zero_optimization\": {\n\"stgae\": 1}}")
          .find("ds.json:2: unknown key zero_optimization.stgae; did you mean zero_optimization.stage?"),
      std::string::npos);
  EXPECT_NE(error_in_text("{\"gradient_cliping\": 1}").find("did you mean gradient_clipping?"),
            std::string::npos);
  EXPECT_NE(error_in_text("{\"zero_optimization\": {\"quite_unknown_thing\": 1}}").find("unknown key"),
            std::string::npos);
  // DeepSpeed ignores these, so scripts keep their own things at the top; they are still named.
  EXPECT_TRUE(mentions(parse_text("{\"quite_unknown_thing\": {\"x\": 1}}").warnings, "quite_unknown_thing"));
  EXPECT_TRUE(
      mentions(parse_text("{\"reduce_bucket_size\": 5}").warnings, "zero_optimization.reduce_bucket_size"));
  EXPECT_TRUE(
      mentions(parse_text("{\"aio\": {\"quite_unknown_thing\": 5}}").warnings, "quite_unknown_thing"));
}

TEST(ConfigParser, DeprecatedKeys) {
  const ParsedConfig pinned = parse_text(
      R"({"zero_optimization": {"stage": 2, "cpu_offload": true, "cpu_offload_use_pin_memory": false}})");
  EXPECT_EQ(pinned.config.zero.offload_optimizer.device, OffloadDevice::cpu);
  EXPECT_TRUE(mentions(pinned.notes, "always pinned"));
  TrainConfig c = parse_text(R"({"zero_optimization": {"stage": 3, "cpu_offload_param": true}})").config;
  EXPECT_EQ(c.zero.offload_param.device, OffloadDevice::cpu);
  c = parse_text(R"({"zero_optimization": {"stage": 3, "cpu_offload": false}})").config;
  EXPECT_EQ(c.zero.offload_optimizer.device, OffloadDevice::none);

  const ParsedConfig legacy = parse_text(R"({"zero_optimization": true, "allgather_size": 5000})");
  EXPECT_EQ(legacy.config.zero.stage, 1);
  EXPECT_EQ(legacy.config.zero.allgather_bucket_size, 5000);
  EXPECT_TRUE(mentions(legacy.warnings, "deprecated"));
  EXPECT_EQ(parse_text(R"({"zero_optimization": false})").config.zero.stage, 0);
  EXPECT_EQ(parse_text(R"({"bfloat16": {"enabled": true}})").config.precision.compute, DType::bf16);
  EXPECT_TRUE(mentions(
      parse_text(R"({"zero_optimization": {"stage3_gather_fp16_weights_on_model_save": true}})").notes,
      "stage3_gather_16bit_weights_on_model_save"));
}

TEST(ConfigParser, OldAndNewTogetherIsAnError) {
  for (const char* text : {
           R"({"zero_optimization": {"cpu_offload": true, "offload_optimizer": {"device": "cpu"}}})",
           R"({"zero_optimization": {"offload_optimizer": {"pin_memory": true}, "cpu_offload": false}})",
           R"({"zero_optimization": {"cpu_offload_param": true, "offload_param": {"device": "cpu"}}})",
           R"({"zero_optimization": {"stage3_prefetch_bucket_size": 1, "prefetch_bucket_size": 1}})",
           R"({"zero_optimization": {"stage3_gather_fp16_weights_on_model_save": true,
                                     "stage3_gather_16bit_weights_on_model_save": true}})",
           R"({"bf16": {"enabled": true}, "bfloat16": {"enabled": true}})",
           R"({"bfloat16": {"enabled": true}, "bf16": {"enabled": true}})",
           R"({"seed": 1, "zeno": {"seed": 1}})",
       }) {
    EXPECT_NE(error_in_text(text).find("keep one"), std::string::npos) << text << error_in_text(text);
  }
}

TEST(ConfigParser, AliasesWithAndWithoutStage3) {
  const auto zero = [](const char* prefix) {
    const std::string p = prefix;
    return parse_text("{\"zero_optimization\": {\"stage\": 3, \"" + p + "prefetch_bucket_size\": 11, \"" + p +
                      "param_persistence_threshold\": 12, \"" + p + "model_persistence_threshold\": 13, \"" +
                      p + "max_live_parameters\": 14, \"" + p + "max_reuse_distance\": 15}}")
        .config.zero;
  };
  for (const char* prefix : {"", "stage3_"}) {
    const ZeroConfig z = zero(prefix);
    EXPECT_EQ(z.prefetch_bucket_size, 11);
    EXPECT_EQ(z.param_persistence_threshold, 12);
    EXPECT_EQ(z.model_persistence_threshold, 13);
    EXPECT_EQ(z.max_live_parameters, 14);
    EXPECT_EQ(z.max_reuse_distance, 15);
  }
}

TEST(ConfigParser, RefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"zero_optimization": {"zero_quantized_nontrainable_weights": true}})",
       "zero_quantized_nontrainable_weights"},
      {R"({"zero_optimization": {"legacy_stage1": true}})", "legacy_stage1"},
      {R"({"zero_optimization": {"zenflow": {"topk_ratio": 0.1}}})", "zenflow"},
      {R"({"tensor_parallel": {"autotp_size": 2}})", "autotp_size"},
      {R"({"pipeline": {"stages": 0}})", "stages"},
      {R"({"sequence_parallel_size": -1})", "sequence_parallel_size"},
      {R"({"elasticity": {"enabled": true}})", "elasticity"},
      {R"({"amp": {"enabled": true, "opt_level": "O1"}})", "amp"},
      {R"({"torch_autocast": {"enabled": true}})", "torch_autocast"},
      {R"({"optimizer": {"type": "Adam", "params": {"max_grad_norm": 1.0}}})", "max_grad_norm"},
      {R"({"optimizer": {"type": "OneBitAdam", "params": {"lr": 1e-3}}})", "OneBitAdam"},
      {R"({"optimizer": {"type": "Lamb"}})", "Lamb"},
      {R"({"optimizer": {"params": {"freeze_step": 400, "lr": 1e-3}, "type": "OneBitLamb"}})", "OneBitLamb"},
      {R"({"zero_optimization": {"zeropp_loco_param": {"err_beta": 0.8}}})", "zeropp_loco_param"},
      {R"({"gradient_allreduce_op": "sum"})", "gradient_allreduce_op"},
      {R"({"curriculum_learning": {"enabled": true}})", "curriculum_learning"},
      {R"({"compression_training": {"a": {"b": {"enabled": true}}}})", "compression_training"},
      {R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}})", "nvme_path"},
      {R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})", "both enabled"},
  };
  for (const auto& [text, name] : cases) {
    EXPECT_NE(error_in_text(text).find(name), std::string::npos) << text << ": " << error_in_text(text);
  }
}

TEST(ConfigParser, ParallelismIsReadWhereDeepSpeedHasIt) {
  const ParsedConfig parsed = parse_text(R"({"pipeline": {"stages": 4}, "sequence_parallel_size": 2})");
  EXPECT_EQ(parsed.config.parallel.pipe, 4);
  EXPECT_EQ(parsed.config.parallel.context, 2);
}

TEST(ConfigParser, TheSameKeysSwitchedOffAreFine) {
  const ParsedConfig parsed = parse_text(R"({
    "elasticity": {"enabled": false, "micro_batch_sizes": [1, 2, 3]}, "amp": {"enabled": false},
    "tensor_parallel": {"autotp_size": 1}, "pipeline": {"stages": "auto"}, "sequence_parallel_size": 1,
    "curriculum_learning": {"enabled": false, "min_difficulty": 8}, "flops_profiler": {"enabled": false, "profile_step": 1},
    "compression_training": {"a": {"enabled": false}}, "wandb": {"enabled": false}, "tensorboard": {"output_path": "x"},
    "zero_optimization": {"zero_quantized_weights": false, "offload_param": {"device": "none"}, "zenflow": null},
    "gradient_allreduce_op": "mean", "wall_clock_breakdown": false, "dump_state": false,
    "disable_allgather": true, "optimizer": {"params": {"lr": 1e-5}}
  })");
  EXPECT_TRUE(parsed.warnings.empty()) << parsed.warnings[0];
}

TEST(ConfigParser, QuantizedCommunication) {
  const auto parsed = [](const char* stage) {
    return parse_text(std::string(R"({"zero_optimization": {"zero_quantized_weights": true, "stage": )") +
                      stage + "}}");
  };
  EXPECT_TRUE(parsed("3").config.zero.quantized_weights);
  EXPECT_TRUE(parsed("3").notes.empty());
  ASSERT_EQ(parsed("2").notes.size(), 1u);
  EXPECT_NE(parsed("2").notes[0].find("zero_quantized_weights: no effect at stage 2"), std::string::npos)
      << parsed("2").notes[0];
  const ParsedConfig gradients =
      parse_text(R"({"zero_optimization": {"zero_quantized_gradients": true, "stage": 1}})");
  EXPECT_TRUE(gradients.config.zero.quantized_gradients);
  EXPECT_TRUE(gradients.notes.empty());
  const ParsedConfig whole =
      parse_text(R"({"zero_optimization": {"zero_quantized_gradients": true, "stage": 0}})");
  const ParsedConfig typed = parse_text(R"({"communication_data_type": "fp16",
                                       "zero_optimization": {"zero_quantized_gradients": true, "stage": 2}})");
  ASSERT_EQ(typed.notes.size(), 1u);
  EXPECT_NE(typed.notes[0].find("no effect with zero_quantized_gradients"), std::string::npos);
  ASSERT_EQ(whole.notes.size(), 1u);
  EXPECT_NE(whole.notes[0].find("zero_quantized_gradients: no effect at stage 0"), std::string::npos);
}

TEST(ConfigParser, GroupsOfShards) {
  const ParsedConfig mics = parse_text(R"({"zero_optimization": {"stage": 3, "mics_shard_size": 4,
                                      "mics_hierarchical_params_gather": true}})");
  EXPECT_EQ(mics.config.zero.shard_group, 4);
  const ParsedConfig hpz = parse_text(R"({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}})");
  EXPECT_EQ(hpz.config.zero.param_group, 8);
  const std::string both = error_in_text(
      R"({"zero_optimization": {"stage": 3, "mics_shard_size": 4, "zero_hpz_partition_size": 8}})");
  EXPECT_NE(both.find("expected one: groups for all states, or for the parameters only"), std::string::npos)
      << both;
}

TEST(ConfigParser, GroupSizesThatMeanNoGroupsAreOff) {
  for (const char* off :
       {"zero_optimization: {mics_shard_size: 0}", "zero_optimization: {mics_shard_size: 1}",
        "zero_optimization: {zero_hpz_partition_size: 0}",
        "tensor_parallel: {autotp_size: 0, preset_model: 'llama'}", "pipeline: {stages: 1}",
        "sequence_parallel_size: 0"})
    EXPECT_EQ(error_in_text(fmt::format("{{{}}}", off)), "no error") << off;
}

// Keys of other trainers and of older versions, which DeepSpeed accepts.
TEST(ConfigParser, KeysThatDeepSpeedLetsPass) {
  const ParsedConfig parsed = parse_text(R"({
    "fp16": {"enabled": true, "dynamic_loss_scale": true, "fp16_scale_tolerance": 0.25},
    "bfp16": {"enabled": true}, "disable_allgather": true, "communication_data_type": "bfp16"
  })");
  EXPECT_EQ(parsed.config.precision.compute, DType::f16);
  EXPECT_EQ(parsed.config.precision.communication, DType::bf16);
  for (const char* key : {"fp16.dynamic_loss_scale", "fp16.fp16_scale_tolerance", "bfp16"})
    EXPECT_TRUE(mentions(parsed.warnings, key)) << key;
  EXPECT_TRUE(mentions(parsed.notes, "disable_allgather"));
  EXPECT_EQ(parse_text(R"({"bfp16": {"enabled": true}})").config.precision.compute, DType::f32);
}

TEST(ConfigParser, WhatAFlagReplacesIsNamedOnce) {
  const char* file = "{\n\"optimizer\": {\"params\": {\"lr\": 3e-5}},\n\"gradient_clipping\": 1}";
  const ParsedConfig parsed =
      parse_text(file, {{"optimizer.params.lr", "1e-5", "--lr"}, {"gradient_clipping", "1.0", "--clip"}});
  EXPECT_TRUE(mentions(parsed.notes, "ds.json:2: optimizer.params.lr 3e-5 is replaced by --lr 1e-5"));
  EXPECT_EQ(parsed.notes.size(), 1u);  // the same value replaces nothing
  // What was left to us or would have been refused is only filled in.
  const ParsedConfig filled =
      parse_text("{optimizer: {type: 'OneBitAdam', params: {lr: 'auto'}}}",
                 {{"optimizer.params.lr", "1e-5", "--lr"}, {"optimizer.type", "AdamW", "--optimizer"}});
  EXPECT_EQ(filled.notes.size(), 1u);
  EXPECT_TRUE(mentions(filled.notes, "optimizer.type \"OneBitAdam\" is replaced by --optimizer \"AdamW\""));
  // Recompute has three keys.
  EXPECT_TRUE(mentions(parse_text("{activation_checkpointing: {number_checkpoints: 4}}",
                                  {{"zeno.recompute", "none", "--recompute"}})
                           .notes,
                       "number_checkpoints is replaced by flag --recompute none"));
}

TEST(ConfigParser, HarmlessFeaturesAreWarnedAbout) {
  const ParsedConfig parsed = parse_text(R"({
    "tensorboard": {"enabled": true, "output_path": "x"}, "wandb": {"enabled": true}, "aio": {"block_size": 262144},
    "flops_profiler": {"enabled": true}, "wall_clock_breakdown": true, "autotuning": {"enabled": true},
    "optimizer": {"params": {"lr": 1e-5}}
  })");
  for (const char* key :
       {"tensorboard", "wandb", "aio", "flops_profiler", "wall_clock_breakdown", "autotuning"}) {
    EXPECT_TRUE(mentions(parsed.warnings, key)) << key;
  }
  EXPECT_EQ(parsed.warnings.size(), 6u);  // one per feature, not one per key
}

TEST(ConfigParser, Flags) {
  const ParsedConfig parsed =
      load_config("", std::vector<FlagOverride>{{"zero_optimization.stage", "2", "--stage"},
                                                {"zeno.dtype", "bf16", "--dtype"},
                                                {"zeno.data", "a.bin", "--data"},
                                                {"zeno.data", "b.bin", "--data"},
                                                {"zeno.reproducible", "true", "--reproducible"},
                                                {"zeno.resume", "auto", "--resume"},
                                                {"zeno.order", "vertical", "--order"},
                                                {"optimizer.params.betas", "0.9,0.95", "--betas"}});
  const TrainConfig& c = parsed.config;
  EXPECT_EQ(c.zero.stage, 2);
  EXPECT_EQ(c.precision.compute, DType::bf16);
  EXPECT_EQ(c.run.data, (std::vector<std::string>{"a.bin", "b.bin"}));
  EXPECT_TRUE(c.run.reproducible);
  EXPECT_EQ(c.run.resume, "auto");
  EXPECT_EQ(c.run.order, MicroBatchOrder::vertical);
  EXPECT_EQ(c.optimizer.betas[1], 0.95);
  EXPECT_NE(error_in_text("{}", {{"zero_optimization.stage", "7", "--stage"}}).find("flag --stage"),
            std::string::npos);
  EXPECT_NE(error_in_text("{}", {{"zero_optimization.stagee", "1", "--set"}}).find("did you mean"),
            std::string::npos);
  EXPECT_EQ(parse_text("{reproducible: true, order: 'vertical'}").config.run.order,
            MicroBatchOrder::vertical);
}

// It costs a promise, so a run says so.
TEST(ConfigParser, NativeReductionIsSaid) {
  EXPECT_EQ(parse_text("{}").config.run.reduction, ReductionMode::tree);
  const ParsedConfig native = parse_text("{zeno: {reduction: 'native'}}");
  EXPECT_EQ(native.config.run.reduction, ReductionMode::native);
  ASSERT_EQ(native.notes.size(), 1u);
  EXPECT_NE(native.notes[0].find("the promise of same bits is off"), std::string::npos) << native.notes[0];
  EXPECT_NE(error_in_text("{zeno: {reduction: 'ring'}}").find("tree"), std::string::npos);
  const std::string both = error_in_text("{zeno: {reduction: 'native', reproducible: true}}");
  EXPECT_NE(both.find("zeno.reduction: got native with reproducible, expected tree"), std::string::npos)
      << both;
}

TEST(ConfigParser, ListsAndQuotedValues) {
  EXPECT_EQ(
      parse_text(R"({"zero_optimization": {"reduce_bucket_size": "5e8"}})").config.zero.reduce_bucket_size,
      500'000'000);
  EXPECT_TRUE(parse_text(R"({"sparse_gradients": 1})").config.sparse_gradients);
  EXPECT_EQ(parse_text(R"({"optimizer": {"type": "Adam", "params": {"betas": [0.8, 0.99]}}})")
                .config.optimizer.betas[0],
            0.8);
  EXPECT_NE(error_in_text(R"({"optimizer": {"params": {"betas": [0.8]}}})"), "no error");
  EXPECT_NE(error_in_text(R"({"optimizer": {"params": {"betas": [0.8, 1.0]}}})"), "no error");
  EXPECT_NE(error_in_text("{optimizer: 5}"), "no error");
  EXPECT_NE(error_in_text("[]"), "no error");
  const ParsedConfig rounded =
      parse_text(R"({"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 15099494.4}})");
  EXPECT_EQ(rounded.config.zero.prefetch_bucket_size, 15099494);
  EXPECT_TRUE(mentions(rounded.warnings, "rounded down"));
}

}  // namespace
}  // namespace zeno::config
