// What a run does where nobody says: a fine-tune without a config file, DeepSpeed's defaults with one.
#include <gtest/gtest.h>

#include "tests/config/mentions.h"
#include "zeno/base/error.h"
#include "zeno/config/config_resolve.h"

namespace zeno::config {
namespace {

const FlagOverride kAdapters{"zeno.lora_rank", "8", "--lora-rank"};

ParsedConfig flags(std::vector<FlagOverride> given) { return load_config("", given); }
ParsedConfig file(std::string_view text, std::vector<FlagOverride> given = {}) {
  return parse_config({parse_relaxed_json(text, "ds.json"), "ds.json"}, given);
}

TEST(Defaults, OfAFineTune) {
  ParsedConfig parsed = flags({});
  EXPECT_EQ(parsed.config.optimizer.lr, 2e-5);
  EXPECT_EQ(flags({kAdapters}).config.optimizer.lr, 2e-4);
  EXPECT_EQ(flags({{"zeno.adapter", "a", "--adapter"}}).config.optimizer.lr, 2e-4);
  EXPECT_EQ(flags({kAdapters, {"optimizer.params.lr", "1e-3", "--lr"}}).config.optimizer.lr, 1e-3);
  EXPECT_EQ(parsed.config.schedule.type, ScheduleType::cosine);
  EXPECT_EQ(parsed.config.schedule.lr, 2e-5);
  EXPECT_TRUE(parsed.config.run.choose);
  EXPECT_TRUE(parsed.warnings.empty());
  resolve_steps(parsed, 100);
  EXPECT_EQ(parsed.config.schedule.warmup_steps, 3);
  // Nothing of this is the user's word.
  for (const char* key : {"optimizer.params.lr", "scheduler.type", "zeno.auto", "zeno.dtype"})
    EXPECT_FALSE(parsed.given(key)) << key;
  EXPECT_NE(print_config(parsed).find("default for full training"), std::string::npos);
}

TEST(Defaults, FlagsWin) {
  EXPECT_FALSE(flags({{"zeno.auto", "false", "--no-auto"}}).config.run.choose);
  EXPECT_EQ(flags({{"scheduler.type", "constant", "--schedule"}}).config.schedule.warmup, 0);
  EXPECT_EQ(flags({{"scheduler.type", "linear", "--schedule"}}).config.schedule.warmup, 0.03);
  EXPECT_EQ(flags({{"scheduler.params.warmup_num_steps", "0", "--warmup"}}).config.schedule.warmup, 0);
  EXPECT_EQ(flags({{"scheduler.type", "WarmupLR", "--schedule"}}).config.schedule.warmup_steps, 1000);
}

TEST(Defaults, AConfigKeepsThoseOfDeepSpeedButTheRate) {
  const ParsedConfig parsed = file("{zero_optimization: {stage: 2}}");
  EXPECT_EQ(parsed.config.schedule.type, ScheduleType::constant);
  EXPECT_FALSE(parsed.config.run.choose);
  EXPECT_EQ(parsed.config.precision.compute, DType::f32);
  EXPECT_EQ(parsed.config.optimizer.lr, 2e-5);
  EXPECT_TRUE(mentions(parsed.warnings, "optimizer.params.lr: not in the config: 2e-05 for full training"));
  EXPECT_TRUE(mentions(file("{}", {kAdapters}).warnings, "0.0002 for adapters"));
  EXPECT_EQ(file("{optimizer: {type: 'Adam'}}").config.optimizer.lr, 2e-5);
  EXPECT_TRUE(
      mentions(file("{optimizer: {params: {lr: 'auto'}}}").warnings, "\"auto\" in the config: 2e-05"));
  EXPECT_TRUE(file("{optimizer: {params: {lr: 1e-3}}}").warnings.empty());
  EXPECT_TRUE(file("{}", {{"optimizer.params.lr", "1e-3", "--lr"}}).warnings.empty());
}

TEST(Defaults, ARateOfTheScheduleIsARate) {
  EXPECT_TRUE(file("{scheduler: {type: 'WarmupLR', params: {warmup_max_lr: 3e-5}}}").warnings.empty());
  EXPECT_TRUE(file("{scheduler: {type: 'OneCycle', params: {cycle_min_lr: 1e-5, cycle_max_lr: 1e-4, "
                   "cycle_momentum: false}}}")
                  .warnings.empty());
  // Nobody gave one: DeepSpeed's 1e-3 is not taken either.
  const ParsedConfig decay = file("{scheduler: {type: 'WarmupDecayLR'}}");
  EXPECT_EQ(decay.config.schedule.warmup_max_lr, 2e-5);
  EXPECT_TRUE(mentions(decay.warnings, "2e-05"));
  // The optimizer's was given and the schedule does not follow it: as in DeepSpeed, but not in silence.
  const ParsedConfig other = file("{optimizer: {params: {lr: 1e-5}}, scheduler: {type: 'WarmupDecayLR'}}");
  EXPECT_EQ(other.config.schedule.warmup_max_lr, 1e-3);
  EXPECT_TRUE(mentions(other.warnings, "rises to 0.001"));
}

TEST(Defaults, TheDeviceSaysTheDtype) {
  const auto dtype = [](ParsedConfig parsed, Device::Kind kind) {
    resolve_device(parsed, kind);
    EXPECT_FALSE(parsed.is_auto("zeno.dtype"));
    return parsed.config.precision.compute;
  };
  constexpr auto kCpu = Device::Kind::cpu, kGpu = Device::Kind::cuda;
  EXPECT_EQ(dtype(flags({}), kGpu), DType::bf16);
  EXPECT_EQ(dtype(flags({}), kCpu), DType::f32);
  EXPECT_EQ(dtype(flags({{"zeno.dtype", "fp16", "--dtype"}}), kGpu), DType::f16);
  EXPECT_EQ(dtype(file("{}"), kGpu), DType::f32);  // as DeepSpeed
  EXPECT_EQ(dtype(file("{fp16: {enabled: 'auto'}, bf16: {enabled: 'auto'}}"), kGpu), DType::bf16);
  EXPECT_EQ(dtype(file("{fp16: {enabled: true}, bf16: {enabled: 'auto'}}"), kGpu), DType::f16);
  EXPECT_EQ(dtype(file("{fp16: {enabled: 'auto'}, bf16: {enabled: false}}"), kCpu), DType::f32);
  // What depends on the dtype is checked once it is known.
  const std::vector<FlagOverride> fp8{{"zeno.matmul_dtype", "fp8", "--matmul-dtype"}};
  EXPECT_EQ(dtype(flags(fp8), kGpu), DType::bf16);
  ParsedConfig on_cpu = flags(fp8);
  EXPECT_THROW(resolve_device(on_cpu, kCpu), Error);
}

TEST(Defaults, ASmallDatasetStillGetsSteps) {
  EXPECT_EQ(default_batch(1'000'000, 1024, 1), 32);  // 32k tokens
  EXPECT_EQ(default_batch(1'000'000, 4096, 1), 8);
  EXPECT_EQ(default_batch(1'000'000, 1024, 6), 24);
  EXPECT_EQ(default_batch(1'000'000, 1'000'000, 4), 4);  // a sequence for each rank
  EXPECT_EQ(default_batch(1000, 1024, 1), 16);
  EXPECT_EQ(default_batch(3, 1024, 2), 2);
  for (int64_t sequences = 1; sequences < 100'000; sequences = sequences * 3 + 1) {
    for (const int64_t least : {1, 2, 3, 8}) {
      const int64_t batch = default_batch(sequences, 512, least);
      EXPECT_TRUE(batch == least || sequences / batch >= 50) << sequences;
      EXPECT_TRUE(batch == least || batch * 512 <= 32768) << sequences;
      EXPECT_EQ(batch % least, 0);
    }
  }
}

TEST(Defaults, WhatThePlannerSetsIsShownAsOpen) {
  ParsedConfig parsed = flags({{"zero_optimization.stage", "2", "--stage"}});
  mark_open(parsed);
  EXPECT_EQ(parsed.origins.at("zero_optimization.stage").text, "flag --stage");
  for (const char* key : {"zeno.recompute", "train_batch_size", "train_micro_batch_size_per_gpu"})
    EXPECT_EQ(parsed.origins.at(key).kind, ValueOrigin::Kind::planned) << key;
  EXPECT_NE(print_config(parsed).find("chosen by the planner when the run starts"), std::string::npos);
  ParsedConfig said = flags({{"train_micro_batch_size_per_gpu", "2", "--micro-batch"}});
  mark_open(said);
  EXPECT_EQ(said.origins.count("train_batch_size"), 0u);  // follows from it
}

}  // namespace
}  // namespace zeno::config
