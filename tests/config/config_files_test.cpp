// Whole config files in the styles met in public repositories.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/config/mentions.h"
#include "zeno/base/error.h"
#include "zeno/config/config_parser.h"
#include "zeno/config/config_resolve.h"

namespace zeno::config {
namespace {

std::string path_of(const std::string& name) {
  return std::string(ZENO_SOURCE_DIR) + "/tests/config/configs/" + name;
}

ParsedConfig load(const std::string& name, std::vector<FlagOverride> flags = {}) {
  return load_config(path_of(name), flags);
}

std::string error_of_file(const std::string& name) {
  try {
    load(name);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "no error";
}

TEST(ConfigFiles, HuggingFaceZero2) {
  ParsedConfig parsed = load("hf_zero2.json", {{"zeno.dtype", "bf16", "--dtype"},
                                               {"optimizer.params.lr", "2e-5", "--lr"},
                                               {"train_micro_batch_size_per_gpu", "2", "--micro-batch"},
                                               {"gradient_accumulation_steps", "4", "--grad-accum"}});
  resolve_batch(parsed, 2);
  resolve_model(parsed, 768, 12);
  const TrainConfig& c = parsed.config;
  EXPECT_EQ(c.zero.stage, 2);
  EXPECT_EQ(c.zero.allgather_bucket_size, 200'000'000);
  EXPECT_EQ(c.zero.reduce_bucket_size, 768 * 768);
  EXPECT_EQ(c.precision.compute, DType::bf16);
  EXPECT_EQ(c.batch.train_batch, 16);
  EXPECT_EQ(c.schedule.type, ScheduleType::warmup_lr);
  EXPECT_EQ(c.schedule.warmup_max_lr, 2e-5);
  EXPECT_EQ(c.run.steps_per_print, 2000);
  EXPECT_TRUE(parsed.warnings.empty()) << parsed.warnings[0];
}

TEST(ConfigFiles, HuggingFaceZero3WithoutFlags) {
  ParsedConfig parsed = load("hf_zero3.json");
  resolve_batch(parsed, 4);
  resolve_model(parsed, 4096, 32);
  EXPECT_EQ(parsed.config.precision.compute, DType::f32);
  EXPECT_TRUE(mentions(parsed.warnings, "--dtype"));
  EXPECT_EQ(parsed.config.batch.train_batch, 4);
  EXPECT_EQ(parsed.config.zero.prefetch_bucket_size, 15099494);
  EXPECT_EQ(parsed.config.zero.param_persistence_threshold, 40960);
  EXPECT_EQ(parsed.config.zero.sub_group_size, 1'000'000'000);
}

TEST(ConfigFiles, AxolotlZero3) {
  const ParsedConfig parsed = load("axolotl_zero3.json", {{"optimizer.params.lr", "2e-5", "--lr"}});
  EXPECT_EQ(parsed.config.zero.sub_group_size, 0);
  EXPECT_EQ(parsed.config.zero.max_live_parameters, 0);
  EXPECT_EQ(parsed.config.zero.max_reuse_distance, 0);
  EXPECT_EQ(parsed.config.precision.compute, DType::bf16);
  EXPECT_EQ(parsed.config.precision.loss_scale.initial_scale_power, 32);
  EXPECT_TRUE(parsed.warnings.empty());
}

TEST(ConfigFiles, Offload) {
  const TrainConfig cpu = load("zero2_offload.json").config;
  EXPECT_EQ(cpu.zero.offload_optimizer.device, OffloadDevice::cpu);
  EXPECT_TRUE(cpu.zero.round_robin_gradients);
  const ParsedConfig nvme = load("nvme.json");
  EXPECT_EQ(nvme.config.zero.offload_param.device, OffloadDevice::nvme);
  EXPECT_EQ(nvme.config.zero.offload_param.max_in_cpu, 1'000'000'000);
  for (const char* key : {"offload_optimizer.pin_memory", "offload_param.pin_memory",
                          "offload_param.buffer_count", "offload_param.buffer_size"})
    EXPECT_TRUE(mentions(nvme.notes, key)) << key;
  EXPECT_TRUE(mentions(nvme.warnings, "aio"));
  // A flag takes the tier away again.
  const ParsedConfig none = load(
      "zero2_offload.json", {{"zero_optimization.offload_optimizer.device", "none", "--offload-optimizer"}});
  EXPECT_EQ(none.config.zero.offload_optimizer.device, OffloadDevice::none);
}

TEST(ConfigFiles, Megatron) {
  ParsedConfig parsed = load("megatron.json");
  resolve_batch(parsed, 4);
  resolve_model(parsed, 1024, 24);
  const TrainConfig& c = parsed.config;
  EXPECT_EQ(c.batch.grad_accum, 8);
  EXPECT_EQ(c.optimizer.kind, OptimizerKind::adamw);
  EXPECT_EQ(c.optimizer.betas[1], 0.95);
  EXPECT_EQ(c.precision.loss_scale.window, 500);
  EXPECT_EQ(c.recompute.mode, RecomputeMode::full);
  EXPECT_EQ(c.recompute.every, 1);
  EXPECT_NEAR(learning_rate(c.schedule, 2001), 1.5e-4, 1e-18);
  EXPECT_TRUE(mentions(parsed.warnings, "wall_clock_breakdown"));
  EXPECT_NE(error_of_file("megatron_old.json").find("max_grad_norm"), std::string::npos);
  EXPECT_NE(error_of_file("megatron_old.json").find("megatron_old.json:4"), std::string::npos);
}

TEST(ConfigFiles, OdditiesAreAcceptedWithAWarning) {
  const ParsedConfig parsed = load("oddities.json");
  for (const char* key : {"low_cpu_mem_usage", "fp16.opt_level", "bf16.loss_scale",
                          "bf16.initial_scale_power", "bf16.hysteresis", "activation_checkpointing.enabled",
                          "offload_optimizer.buffer_size", "rounded down", "run_description_of_ours"}) {
    EXPECT_TRUE(mentions(parsed.warnings, key)) << key;
  }
  EXPECT_EQ(parsed.config.zero.prefetch_bucket_size, 15099494);
  EXPECT_EQ(parsed.config.recompute.mode, RecomputeMode::full);
}

TEST(ConfigFiles, WhatChangesResultsIsRefused) {
  EXPECT_NE(error_of_file("one_bit.json").find("one_bit.json:3: optimizer.type: got \"OneBitAdam\""),
            std::string::npos)
      << error_of_file("one_bit.json");
}

TEST(ConfigFiles, QuantizedCommunicationIsHonoured) {
  const ZeroConfig zero = load("zeropp.json").config.zero;
  EXPECT_TRUE(zero.quantized_weights);
  EXPECT_TRUE(zero.quantized_gradients);
  EXPECT_EQ(zero.param_group, 8);
}

TEST(ConfigFiles, PretrainingWithZenoKeys) {
  ParsedConfig parsed = load("pretrain_cosine.json");
  resolve_batch(parsed, 8);
  const TrainConfig& c = parsed.config;
  EXPECT_EQ(c.batch.grad_accum, 16);
  EXPECT_EQ(c.precision.grad_accum, DType::f32);
  EXPECT_EQ(c.precision.communication, DType::bf16);
  EXPECT_EQ(c.recompute.mode, RecomputeMode::selective);
  EXPECT_EQ(c.run.order, MicroBatchOrder::vertical);
  EXPECT_TRUE(c.run.reproducible);
  EXPECT_TRUE(c.zero.overlap_comm);
  EXPECT_NEAR(learning_rate(c.schedule, 101), 3e-4 * 100 / 200, 1e-18);
  EXPECT_TRUE(mentions(parsed.warnings, "flops_profiler"));
  EXPECT_TRUE(mentions(parsed.warnings, "tensorboard"));
}

TEST(ConfigFiles, EveryFileParsesOrSaysWhere) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path_of(""))) {
    const std::string error = error_of_file(entry.path().filename());
    EXPECT_TRUE(error == "no error" || error.find("[config] ") == 0) << error;
    ++files;
  }
  EXPECT_GE(files, 8);
}

}  // namespace
}  // namespace zeno::config
