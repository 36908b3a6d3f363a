#include "zeno/config/config_resolve.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/config/mentions.h"
#include "zeno/base/error.h"
#include "zeno/config/engine_options.h"

namespace zeno::config {
namespace {

ParsedConfig resolve_text(std::string_view text, std::vector<FlagOverride> flags = {}) {
  return parse_config({parse_relaxed_json(text, "ds.json"), "ds.json"}, flags);
}

bool fails(std::string_view text) {
  try {
    resolve_text(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return true;
  }
  return false;
}

// {train, micro, accumulation} after resolving, or zeros when refused.
std::array<int64_t, 3> batch(int64_t train, int64_t micro, int64_t accum, int64_t world) {
  TrainConfig config;
  config.batch = {train, micro, accum};
  try {
    resolve_batch(config, world);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return {0, 0, 0};
  }
  return {config.batch.train_batch, config.batch.micro_batch, config.batch.grad_accum};
}

using Trio = std::array<int64_t, 3>;

TEST(BatchTrio, Rule) {
  EXPECT_EQ(batch(32, 16, 1, 2), (Trio{32, 16, 1}));
  EXPECT_EQ(batch(32, 8, 2, 2), (Trio{32, 8, 2}));
  EXPECT_EQ(batch(33, 17, 2, 2), (Trio{0, 0, 0}));
  EXPECT_EQ(batch(32, 18, 1, 2), (Trio{0, 0, 0}));
  EXPECT_EQ(batch(32, 0, 0, 2), (Trio{32, 16, 1}));
  EXPECT_EQ(batch(0, 16, 0, 2), (Trio{32, 16, 1}));
  EXPECT_EQ(batch(0, 0, 4, 2), (Trio{0, 0, 0}));
  EXPECT_EQ(batch(0, 0, 0, 2), (Trio{0, 0, 0}));
  EXPECT_EQ(batch(-4, 0, 0, 2), (Trio{0, 0, 0}));
  EXPECT_EQ(batch(3, 0, 0, 2), (Trio{0, 0, 0}));
  EXPECT_EQ(batch(1, 0, 0, 2), (Trio{0, 0, 0}));
  EXPECT_EQ(batch(32, 0, 5, 2), (Trio{0, 0, 0}));
}

TEST(BatchTrio, AnyTwoGiveTheThird) {
  for (int64_t world = 1; world <= 5; ++world) {
    for (int64_t micro = 1; micro <= 6; ++micro) {
      for (int64_t accum = 1; accum <= 6; ++accum) {
        const int64_t train = micro * accum * world;
        const Trio all{train, micro, accum};
        EXPECT_EQ(batch(train, micro, 0, world), all);
        EXPECT_EQ(batch(train, 0, accum, world), all);
        EXPECT_EQ(batch(0, micro, accum, world), all);
        EXPECT_EQ(batch(train, micro, accum, world), all);
        if (world * accum > 1) {
          EXPECT_EQ(batch(train + 1, 0, accum, world), (Trio{0, 0, 0}));
        }
      }
    }
  }
}

TEST(BatchTrio, AutoDefaultsAndFlags) {
  ParsedConfig none = load_config("", {});
  resolve_batch(none, 3);
  EXPECT_EQ(none.config.batch.train_batch, 3);

  ParsedConfig automatic =
      resolve_text(R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
                                     "gradient_accumulation_steps": "auto"})",
                   {{"train_micro_batch_size_per_gpu", "2", "--micro-batch"}});
  resolve_batch(automatic, 4);
  EXPECT_EQ(automatic.config.batch.train_batch, 8);

  ParsedConfig missing = resolve_text("{}");
  EXPECT_THROW(resolve_batch(missing, 1), Error);
}

const FlagOverride kMicro1{"train_micro_batch_size_per_gpu", "1", "--micro-batch"};
const FlagOverride kAccum4{"gradient_accumulation_steps", "4", "--grad-accum"};

// {train, micro, accumulation} of a config and flags, or zeros with the error in `said`; else its warnings.
Trio batch_of(const char* file, std::vector<FlagOverride> flags, int64_t world, std::string& said) {
  ParsedConfig parsed = resolve_text(file, std::move(flags));
  parsed.warnings.clear();
  said.clear();
  try {
    resolve_batch(parsed, world);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    said = error.what();
    return {0, 0, 0};
  }
  for (const std::string& warning : parsed.warnings) said += warning + '\n';
  const BatchConfig& b = parsed.config.batch;
  return {b.train_batch, b.micro_batch, b.grad_accum};
}

TEST(BatchTrio, TheBatchOfTheConfigStays) {
  const struct {
    const char* file;
    std::vector<FlagOverride> flags;
    int64_t world;
    Trio expected;
    const char* said;  // "": nothing
  } cases[] = {
      {"{train_batch_size: 32}", {kMicro1}, 2, {32, 1, 16}, ""},
      {"{train_batch_size: 32, gradient_accumulation_steps: 1}",
       {kMicro1},
       2,
       {32, 1, 16},
       "gradient_accumulation_steps 1 (ds.json:1) becomes 16: train_batch_size 32 (ds.json:1) stays"},
      {"{train_batch_size: 33, gradient_accumulation_steps: 1}",
       {kMicro1},
       2,
       {0, 0, 0},
       "--train-batch 32 or 34"},
      {"{train_batch_size: 32, train_micro_batch_size_per_gpu: 8, gradient_accumulation_steps: 2}",
       {kAccum4},
       2,
       {32, 4, 4},
       "train_micro_batch_size_per_gpu 8 (ds.json:1) becomes 4"},
      // Other ranks than the config was made for.
      {"{train_batch_size: 32, train_micro_batch_size_per_gpu: 8, gradient_accumulation_steps: 2}",
       {},
       4,
       {32, 8, 1},
       "gradient_accumulation_steps 2 (ds.json:1) becomes 1"},
      {"{train_batch_size: 16, train_micro_batch_size_per_gpu: 16}",
       {},
       2,
       {0, 0, 0},
       "--micro-batch 1, 2, 4 or 8"},
      {"{train_batch_size: 8, gradient_accumulation_steps: 4}", {}, 4, {8, 1, 2}, "becomes 2"},
      // Without train_batch_size the other two say it.
      {"{train_micro_batch_size_per_gpu: 4, gradient_accumulation_steps: 2}",
       {kMicro1},
       2,
       {16, 1, 8},
       "becomes 8"},
      {"{train_micro_batch_size_per_gpu: 4}", {kMicro1}, 2, {8, 1, 4}, ""},
      {"{train_micro_batch_size_per_gpu: 4, gradient_accumulation_steps: 2}", {kAccum4}, 2, {32, 4, 4}, ""},
      {"{train_micro_batch_size_per_gpu: 4, gradient_accumulation_steps: 2}",
       {kMicro1, kAccum4},
       2,
       {8, 1, 4},
       ""},
      // All by flags: nothing can adapt.
      {"{train_batch_size: 32}", {kMicro1, kAccum4}, 2, {0, 0, 0}, "--train-batch 8"},
      {"{train_batch_size: 8}", {kMicro1, kAccum4}, 2, {8, 1, 4}, ""},
  };
  for (const auto& c : cases) {
    std::string said;
    EXPECT_EQ(batch_of(c.file, c.flags, c.world, said), c.expected) << c.file << said;
    EXPECT_EQ(said.empty(), *c.said == 0) << c.file << said;
    EXPECT_NE(said.find(c.said), std::string::npos) << c.file << ": " << said;
  }
}

// Whatever file and flags say, a run has the samples per step that the config says, or there is none.
TEST(BatchTrio, NoBatchIsReplacedInSilence) {
  for (int64_t train = 1; train <= 24; ++train) {
    for (int64_t micro = 1; micro <= 5; ++micro) {
      for (int64_t accum = 0; accum <= 4; ++accum) {
        for (int64_t world = 1; world <= 4; ++world) {
          std::string file = fmt::format("{{train_batch_size: {}", train), said;
          if (accum > 0) file += fmt::format(", gradient_accumulation_steps: {}", accum);
          const Trio trio = batch_of(
              (file + "}").c_str(),
              {{"train_micro_batch_size_per_gpu", std::to_string(micro), "--micro-batch"}}, world, said);
          const bool possible = train % (world * micro) == 0;
          EXPECT_EQ(trio[0], possible ? train : 0) << file << micro << world << said;
          EXPECT_EQ(trio[0], trio[1] * trio[2] * world);
          if (possible && accum > 0) {
            EXPECT_EQ(said.empty(), trio[2] == accum) << said;
          }
        }
      }
    }
  }
}

TEST(Resolve, OverlapIsOnAtStage3UnlessGiven) {
  for (int stage = 0; stage <= 3; ++stage) {
    const std::string s = "{zero_optimization: {stage: " + std::to_string(stage);
    EXPECT_EQ(resolve_text(s + "}}").config.zero.overlap_comm, stage == 3);
    EXPECT_EQ(resolve_text(s + ", overlap_comm: null}}").config.zero.overlap_comm, stage == 3);
    EXPECT_EQ(resolve_text(s + ", overlap_comm: 'auto'}}").config.zero.overlap_comm, stage == 3);
    EXPECT_TRUE(resolve_text(s + ", overlap_comm: true}}").config.zero.overlap_comm);
    EXPECT_FALSE(resolve_text(s + ", overlap_comm: false}}").config.zero.overlap_comm);
  }
}

TEST(Resolve, BucketsAndOffloadRatio) {
  EXPECT_TRUE(fails("{zero_optimization: {allgather_bucket_size: 1001}}"));
  EXPECT_FALSE(fails("{zero_optimization: {allgather_bucket_size: 1000}}"));
  EXPECT_FALSE(fails("{zero_optimization: {stage: 2, offload_optimizer: {device: 'cpu', ratio: 0.3}}}"));
  EXPECT_TRUE(fails("{zero_optimization: {stage: 3, offload_optimizer: {device: 'cpu', ratio: 1.1}}}"));
  EXPECT_TRUE(fails("{zero_optimization: {stage: 3, offload_optimizer: {device: 'cpu', ratio: -0.1}}}"));
  for (const char* ratio : {"0", "0.3", "1", "1.0"}) {
    EXPECT_FALSE(
        fails(std::string("{zero_optimization: {stage: 3, offload_optimizer: {device: 'cpu', ratio: ") +
              ratio + "}}}"));
  }
  EXPECT_TRUE(fails("{zero_optimization: {stage: 3, offload_optimizer: {device: 'nvme'}}}"));
  // With several ranks, parameters leave the device at stage 3 only. DeepSpeed drops it in silence, Zeno says
  // so.
  EXPECT_TRUE(resolve_text("{zero_optimization: {stage: 3, offload_param: {device: 'cpu'}}}").notes.empty());
  EXPECT_EQ(resolve_text("{zero_optimization: {stage: 2, offload_param: {device: 'cpu'}}}").notes.size(), 1u);
}

TEST(Resolve, Fp8ProductsNeedBf16AndAGpu) {
  const ParsedConfig parsed = resolve_text("{bf16: {enabled: true}, zeno: {matmul_dtype: 'fp8'}}");
  EXPECT_EQ(parsed.config.precision.matmul, MatmulDtype::fp8);
  EXPECT_TRUE(engine_options(parsed.config, {}, 16).policy.fp8);
  const ParsedConfig plain = resolve_text("{bf16: {enabled: true}, zeno: {matmul_dtype: 'bf16'}}");
  EXPECT_FALSE(engine_options(plain.config, {}, 16).policy.fp8);
  EXPECT_FALSE(engine_options(resolve_text("{}").config, {}, 16).policy.fp8);

  EXPECT_FALSE(fails("{bf16: {enabled: true}, zeno: {matmul_dtype: 'fp8', device: 'cuda'}}"));
  EXPECT_TRUE(fails("{bf16: {enabled: true}, zeno: {matmul_dtype: 'fp8', device: 'cpu'}}"));
  EXPECT_TRUE(fails("{bf16: {enabled: true}, zeno: {matmul_dtype: 'fp4'}}"));
  EXPECT_TRUE(fails("{fp16: {enabled: true}, zeno: {matmul_dtype: 'fp8'}}"));
  EXPECT_TRUE(fails("{zeno: {matmul_dtype: 'fp8'}}"));
  EXPECT_TRUE(fails("{zeno: {matmul_dtype: 'bf16'}}"));
  EXPECT_FALSE(fails("{zeno: {matmul_dtype: 'auto'}}"));
}

TEST(Resolve, LossScaleRules) {
  const auto fp16 = [](const std::string& rest) { return "{fp16: {enabled: true, " + rest + "}}"; };
  for (const char* bad : {"loss_scale: -1", "loss_scale: true", "loss_scale: 'inf'", "loss_scale: 'nan'",
                          "loss_scale_window: 0", "min_loss_scale: 0", "min_loss_scale: -1", "hysteresis: 0",
                          "initial_scale_power: 1000"}) {
    EXPECT_TRUE(fails(fp16(bad))) << bad;
  }
  EXPECT_FALSE(fails(fp16("loss_scale: 128, loss_scale_window: 0, min_loss_scale: 0")));
  EXPECT_FALSE(fails("{fp16: {enabled: false, loss_scale_window: 0}}"));
  const TrainConfig c =
      resolve_text(fp16("loss_scale: 0, initial_scale_power: 32, loss_scale_window: 500, hysteresis: 3, "
                        "consecutive_hysteresis: true, min_loss_scale: 2"))
          .config;
  EXPECT_EQ(c.precision.compute, DType::f16);
  EXPECT_TRUE(c.precision.loss_scale.dynamic());
  EXPECT_EQ(c.precision.loss_scale.initial_scale_power, 32);
  EXPECT_EQ(c.precision.loss_scale.window, 500);
  EXPECT_EQ(c.precision.loss_scale.hysteresis, 3);
  EXPECT_TRUE(c.precision.loss_scale.consecutive_hysteresis);
  EXPECT_EQ(c.precision.loss_scale.min_loss_scale, 2);
}

TEST(Resolve, DataTypes) {
  PrecisionConfig p = resolve_text("{bf16: {enabled: true}}").config.precision;
  EXPECT_EQ(p.compute, DType::bf16);
  EXPECT_EQ(p.grad_accum, DType::f32);
  EXPECT_EQ(p.communication, DType::f32);
  p = resolve_text("{bf16: {enabled: true}, data_types: {grad_accum_dtype: 'bf16'}}").config.precision;
  EXPECT_EQ(p.grad_accum, DType::bf16);
  EXPECT_EQ(p.communication, DType::bf16);
  p = resolve_text("{bf16: {enabled: true}, communication_data_type: 'fp16'}").config.precision;
  EXPECT_EQ(p.grad_accum, DType::f32);
  EXPECT_EQ(p.communication, DType::f16);
  EXPECT_TRUE(fails("{bf16: {enabled: true}, data_types: {grad_accum_dtype: 'fp16'}}"));
  EXPECT_TRUE(fails("{bf16: {enabled: true}, data_types: {param_dtype: 'fp16'}}"));
  EXPECT_FALSE(fails("{bf16: {enabled: true}, data_types: {param_dtype: 'bfloat16'}}"));
  EXPECT_TRUE(fails("{bf16: {enabled: true}, zeno: {dtype: 'fp16'}}"));
  p = resolve_text("{bf16: {enabled: true}}", {{"zeno.dtype", "fp32", "--dtype"}}).config.precision;
  EXPECT_EQ(p.compute, DType::f32);
}

TEST(Resolve, AdamFamilies) {
  for (const char* torch : {"true", "false"}) {
    for (const char* mode : {"true", "false", "null"}) {
      for (const char* type : {"Adam", "AdamW", "adam", "adamw"}) {
        const bool is_adamw = std::string(type).size() == 5;
        const ParsedConfig parsed =
            resolve_text(std::string("{optimizer: {type: '") + type + "', params: {torch_adam: " + torch +
                         ", adam_w_mode: " + mode + "}}}");
        const bool decoupled = is_adamw || std::string(mode) != "false";
        EXPECT_EQ(parsed.config.optimizer.kind, decoupled ? OptimizerKind::adamw : OptimizerKind::adam)
            << type << mode;
        const bool torch_default = std::string(torch) == "true" && decoupled;
        EXPECT_EQ(parsed.config.optimizer.weight_decay, torch_default ? 0.01 : 0) << type << mode << torch;
      }
    }
  }
  EXPECT_EQ(resolve_text("{optimizer: {type: 'SGD', params: {momentum: 0.9}}}").config.optimizer.kind,
            OptimizerKind::sgd);
  EXPECT_EQ(resolve_text("{optimizer: {type: 'Lion'}}").config.optimizer.kind, OptimizerKind::lion);
  EXPECT_EQ(resolve_text("{optimizer: {type: 'Lion', params: {lr: 1e-5, momentum: 0.9}}}").warnings.size(),
            1u);
}

TEST(Resolve, Schedules) {
  ScheduleConfig s =
      resolve_text("{optimizer: {params: {lr: 0.02}}, scheduler: {type: 'WarmupLR'}}").config.schedule;
  EXPECT_EQ(s.type, ScheduleType::warmup_lr);
  EXPECT_EQ(s.warmup_steps, 1000);
  EXPECT_EQ(s.warmup_max_lr, 0.02);
  s = resolve_text(
          "{optimizer: {params: {lr: 0.02}}, scheduler: {type: 'WarmupDecayLR', params: {total_num_steps: "
          "9000}}}")
          .config.schedule;
  EXPECT_EQ(s.warmup_max_lr, 0.001);
  EXPECT_EQ(s.total_steps, 9000);
  const char* hf =
      R"({optimizer: {params: {lr: "auto"}}, scheduler: {type: "WarmupDecayLR", params: {total_num_steps: "auto",
                      warmup_min_lr: "auto", warmup_max_lr: "auto", warmup_num_steps: "auto"}}})";
  s = resolve_text(hf, {{"optimizer.params.lr", "2e-5", "--lr"}, {"zeno.steps", "50", "--steps"}})
          .config.schedule;
  EXPECT_EQ(s.warmup_max_lr, 2e-5);
  EXPECT_EQ(s.warmup_steps, 0);
  EXPECT_EQ(s.total_steps, 50);
  s = resolve_text(hf).config.schedule;
  EXPECT_EQ(s.warmup_max_lr, 2e-5);
  s = resolve_text("{scheduler: {type: 'WarmupLR', params: {warmup_max_lr: 0.5}}}",
                   {{"optimizer.params.lr", "0.1", "--lr"}})
          .config.schedule;
  EXPECT_EQ(s.warmup_max_lr, 0.1);
  EXPECT_TRUE(fails("{scheduler: {type: 'OneCycle'}}"));
  EXPECT_TRUE(fails("{scheduler: {type: 'StepLR'}}"));
  ParsedConfig cosine =
      load_config("", std::vector<FlagOverride>{{"scheduler.type", "cosine", "--schedule"},
                                                {"scheduler.params.warmup_num_steps", "5", "--warmup"}});
  resolve_steps(cosine, 100);
  EXPECT_EQ(cosine.config.schedule.total_steps, 100);
  EXPECT_EQ(cosine.config.schedule.warmup_steps, 5);
}

TEST(Resolve, ClippingDefaultAndOff) {
  EXPECT_EQ(resolve_text("{}").config.optimizer.gradient_clipping, 1.0);
  EXPECT_EQ(resolve_text("{gradient_clipping: 0}").config.optimizer.gradient_clipping, 0);
  EXPECT_EQ(resolve_text("{gradient_clipping: 'auto'}").config.optimizer.gradient_clipping, 1.0);
  EXPECT_TRUE(fails("{gradient_clipping: -1}"));
}

TEST(Resolve, SizesThatFollowTheModel) {
  ParsedConfig parsed = resolve_text(
      R"({zero_optimization: {stage: 3, reduce_bucket_size: "auto", stage3_prefetch_bucket_size: "auto",
                                  stage3_param_persistence_threshold: "auto", stage3_max_live_parameters: "auto"}})");
  resolve_model(parsed, 4097, 32);
  EXPECT_EQ(parsed.config.zero.reduce_bucket_size, 4097 * 4097);
  EXPECT_EQ(parsed.config.zero.prefetch_bucket_size, static_cast<int64_t>(4097) * 4097 * 9 / 10);
  EXPECT_EQ(parsed.config.zero.param_persistence_threshold, 40970);
  EXPECT_EQ(parsed.config.zero.max_live_parameters, 1'000'000'000);
  ParsedConfig fixed = resolve_text("{zero_optimization: {reduce_bucket_size: 7}}");
  resolve_model(fixed, 64, 2);
  EXPECT_EQ(fixed.config.zero.reduce_bucket_size, 7);
}

TEST(Resolve, Recompute) {
  ParsedConfig parsed =
      resolve_text("{activation_checkpointing: {number_checkpoints: 5, partition_activations: true}}");
  resolve_model(parsed, 64, 12);
  EXPECT_EQ(parsed.config.recompute.mode, RecomputeMode::full);
  EXPECT_EQ(parsed.config.recompute.every, 3);
  EXPECT_EQ(resolve_text("{activation_checkpointing: {}}").config.recompute.mode, RecomputeMode::none);
  EXPECT_EQ(resolve_text("{activation_checkpointing: {enabled: true}}").config.recompute.mode,
            RecomputeMode::full);
  EXPECT_EQ(resolve_text("{zeno: {recompute: 'selective', recompute_every: 2}}").config.recompute.mode,
            RecomputeMode::selective);
  EXPECT_EQ(resolve_text("{zeno: {recompute_every: 2}}").config.recompute.mode, RecomputeMode::full);
}

TEST(Resolve, ValuesThatNothingLooksAtAreNamed) {
  const struct {
    const char *idle, *used;
  } values[] = {
      {"zeno: {epochs: 2, steps: 5}", "zeno: {epochs: 2}"},
      {"zeno: {keep_last: 3}", "zeno: {keep_last: 3, save_every: 5}"},
      {"zeno: {keep_every: 10}", "zeno: {keep_every: 10, save_every: 5}"},
      {"zeno: {peer_snapshot_dir: '/dev/shm'}", "zeno: {peer_snapshot_dir: '/dev/shm', peer_snapshot: 1}"},
      {"zeno: {recompute: 'selective', recompute_every: 2}", "zeno: {recompute: 'full', recompute_every: 2}"},
      {"zero_optimization: {offload_optimizer: {device: 'cpu', nvme_path: '/d'}}",
       "zero_optimization: {offload_optimizer: {device: 'auto', nvme_path: '/d'}}"},
      {"zero_optimization: {offload_optimizer: {nvme_path: '/d'}}",
       "zero_optimization: {offload_optimizer: {nvme_path: '/d'}}, zeno: {auto: true}"},
      {"zeno: {order: 'horizontal', reproducible: true}", "zeno: {order: 'vertical', reproducible: true}"},
      {"sparse_gradients: true, zeno: {device: 'cuda'}", "sparse_gradients: true, zeno: {device: 'cpu'}"},
      {"zeno: {eval_max_samples: 9}", "zeno: {eval_max_samples: 9, eval_split: 0.1}"},
      {"zeno: {best_metric: 'accuracy'}", "zeno: {best_metric: 'accuracy', eval_split: 0.1}"},
      {"zeno: {early_stopping_delta: 0.1, eval_split: 0.1}",
       "zeno: {early_stopping_delta: 0.1, early_stopping: 2, eval_split: 0.1}"},
  };
  for (const auto& value : values) {
    EXPECT_TRUE(mentions(resolve_text(fmt::format("{{{}}}", value.idle)).notes, "no effect")) << value.idle;
    EXPECT_FALSE(mentions(resolve_text(fmt::format("{{{}}}", value.used)).notes, "no effect")) << value.used;
  }
}

TEST(Resolve, ActivationsOnTheHostNeedFullRecompute) {
  for (const auto& [mode, notes] : {std::pair{"none", 1}, {"selective", 1}, {"full", 0}, {"auto", 0}}) {
    const ParsedConfig parsed = resolve_text(fmt::format(
        "{{activation_checkpointing: {{cpu_checkpointing: true}}, zeno: {{recompute: '{}'}}}}", mode));
    EXPECT_TRUE(parsed.config.recompute.offload);
    EXPECT_EQ(std::ranges::count_if(parsed.notes,
                                    [](const std::string& note) {
                                      return note.find("cpu_checkpointing: no effect") != std::string::npos;
                                    }),
              notes)
        << mode;
  }
}

}  // namespace
}  // namespace zeno::config
