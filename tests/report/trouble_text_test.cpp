#include "zeno/report/trouble_text.h"
#include "tests/support/text.h"

#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "zeno/config/config_keys.h"

namespace zeno::report {
namespace {

TroubleSetting setting(int stage, int64_t accum = 1) {
  TroubleSetting s;
  s.ranks = 4;
  s.config.zero.stage = stage;
  s.config.batch = {.train_batch = 4 * accum, .micro_batch = 1, .grad_accum = accum};
  zero::apply_stage(s.policy, stage);
  s.policy.micro_batches = int(accum);
  s.policy.overlap = true;
  s.largest_unit = 1000;
  return s;
}

std::string text_of(TroubleKind kind, const TroubleSetting& s) {
  std::string text;
  for (const std::string& remedy : remedies({.kind = kind, .share = 0.2}, s)) text += remedy + "\n";
  return text;
}
using test::has;

TEST(TroubleText, OneLineSaysWhatHowMuchWhereAndWhatHelps) {
  TroubleSetting s = setting(3, 8);
  s.policy.prefetch = 500;
  EXPECT_EQ(describe({.kind = TroubleKind::communication, .share = 0.23, .steps = 20}, s, "gather blocks.7"),
            "communication is exposed for 23 % of the step over 20 steps (most: gather blocks.7); what "
            "helps: --order "
            "vertical (once per step instead of for each of 8 micro-batches), or raise "
            "stage3_prefetch_bucket_size to 2,000 (now 500: less than two layers ahead), or --micro-batch 2 "
            "--grad-accum 4 (the same batch in half as many passes)");
}

TEST(TroubleText, ASlowRankIsNamedWithItsHost) {
  TroubleSetting s = setting(2);
  const Trouble slow{.kind = TroubleKind::slow_rank, .share = 0.28, .steps = 20, .rank = 3, .ratio = 1.4};
  EXPECT_TRUE(has(describe(slow, s, ""), "rank 3 takes 1.4 times as long as the others, by computing"));
  s.hosts = {"a", "a", "b", "b"};
  EXPECT_TRUE(has(describe(slow, s, ""), "rank 3 (host b) takes"));
}

TEST(TroubleText, OnlySettingsThatApplyAreNamed) {
  TroubleSetting s = setting(1);
  EXPECT_EQ(text_of(TroubleKind::communication, s), "--grad-accum 2 (the same bytes for twice the work)\n");
  s.policy.overlap = false;
  EXPECT_TRUE(has(text_of(TroubleKind::communication, s), "overlap_comm"));

  s = setting(3, 4);
  s.policy.order = zero::Order::vertical;
  const std::string vertical = text_of(TroubleKind::communication, s);
  EXPECT_FALSE(has(vertical, "--order"));
  EXPECT_FALSE(has(vertical, "prefetch"));  // two layers fit already
  EXPECT_TRUE(has(vertical, "--stage 2"));
  EXPECT_FALSE(has(vertical, "communication_data_type"));
  s.policy.compute = DType::bf16;
  EXPECT_TRUE(has(text_of(TroubleKind::communication, s), "\"communication_data_type\": \"bf16\""));
  s.policy.reduction = comm::Reduction::native;  // on CPUs by MPI, which adds fp32 only
  EXPECT_FALSE(has(text_of(TroubleKind::communication, s), "communication_data_type"));

  s = setting(1);
  s.policy.offload.optimizer = Tier::disk;
  s.config.zero.offload_optimizer.nvme_path = "/a,/b";
  const std::string disk = text_of(TroubleKind::disk, s);
  EXPECT_TRUE(has(disk, "--offload-optimizer cpu"));
  EXPECT_TRUE(has(disk, "(now 2)"));
  EXPECT_TRUE(has(disk, "--moment-dtype 8bit"));
  s.policy.moments = DType::u8;
  EXPECT_FALSE(has(text_of(TroubleKind::disk, s), "--moment-dtype"));
}

TEST(TroubleText, LossScale) {
  TroubleSetting s = setting(1);
  s.config.precision.loss_scale.initial_scale_power = 60;
  const Trouble search{.kind = TroubleKind::loss_scale, .steps = 20, .skipped = 5, .scale = 32768};
  EXPECT_TRUE(has(describe(search, s, ""),
                  "5 of 20 steps were skipped because of overflow, the loss scale is 32768"));
  EXPECT_TRUE(has(describe(search, s, ""), "fp16.initial_scale_power 15 (now 60)"));
  const Trouble fell{.kind = TroubleKind::loss_scale, .steps = 20, .skipped = 5, .scale = 8};
  EXPECT_FALSE(has(describe(fell, s, ""), "initial_scale_power"));
  EXPECT_TRUE(has(describe(fell, s, ""), "--dtype bf16"));
  s.config.precision.loss_scale.loss_scale = 1e6;
  EXPECT_TRUE(has(describe(search, s, ""), "fp16.loss_scale 0"));
}

// Whatever the run is like, its advice names flags and keys that exist.
TEST(TroubleText, EverySettingThatIsNamedExists) {
  std::set<std::string> flags, keys;
  for (const config::ConfigKey& key : config::config_keys()) {
    if (!key.flag.empty()) flags.insert(std::string(key.flag));
    keys.insert(std::string(key.path));
    keys.insert(std::string(key.path.substr(key.path.rfind('.') + 1)));
  }
  std::string text;
  for (int stage = 0; stage <= 3; ++stage) {
    for (int variant = 0; variant < 16; ++variant) {
      TroubleSetting s = setting(stage, variant % 2 ? 4 : 1);
      s.policy.overlap = variant & 2;
      s.policy.prefetch = 0;
      s.policy.compute = variant & 4 ? DType::bf16 : DType::f32;
      s.policy.offload.optimizer = variant & 8 ? Tier::disk : Tier::host;
      s.policy.offload.params = variant & 4 ? Tier::disk : Tier::host;
      s.policy.offload.activations = true;
      s.config.run.save_every = variant & 1;
      s.config.optimizer.gradient_clipping = 0;
      for (int kind = 0; kind < kTroubles; ++kind) text += text_of(TroubleKind(kind), s);
      for (int part = 0; part < 4; ++part) {
        for (const std::string& remedy :
             remedies({.kind = TroubleKind::slow_rank, .part = Trouble::Part(part)}, s))
          text += remedy + "\n";
      }
    }
  }
  const std::regex flag("--[a-z-]+"), key("[a-z0-9]+(_[a-z0-9]+)+");
  int found = 0;
  for (std::sregex_iterator i(text.begin(), text.end(), flag), end; i != end; ++i, ++found)
    EXPECT_TRUE(flags.contains(i->str())) << i->str();
  for (std::sregex_iterator i(text.begin(), text.end(), key), end; i != end; ++i, ++found)
    EXPECT_TRUE(keys.contains(i->str())) << i->str();
  EXPECT_GT(found, 500);
}

Troubles after(zero::RankTimes spent, int steps) {
  Troubles troubles;
  Observation o;
  o.step_ms = 100;
  o.spent = spent;
  for (int i = 0; i < steps; ++i) troubles.look(o);
  return troubles;
}

TEST(TroubleText, AdviceSaysWhatBoundsTheStep) {
  TroubleSetting s = setting(1, 4);
  const Troubles computes = after({.compute = 97, .communication = 3}, 100);
  EXPECT_EQ(advice(computes, {}, s, {}), "Computation bounds the step: 97 % of it.");
  EXPECT_TRUE(has(advice(computes, {}, s, {1 << 20, 8 << 20}), "--micro-batch 2 --grad-accum 2"));
  s.config.recompute.mode = config::RecomputeMode::full;
  EXPECT_TRUE(has(advice(computes, {}, s, {1 << 20, 8 << 20}), "--recompute auto"));
  EXPECT_FALSE(has(advice(computes, {}, s, {7 << 20, 8 << 20}), "--recompute"));
  EXPECT_TRUE(has(advice(after({.compute = 97}, 5), {}, s, {}), "Too short"));
  EXPECT_EQ(advice(after({.compute = 60, .communication = 12, .data = 8}, 100), {}, s, {}),
            "No single part holds up the step: computation takes 60 %, communication 12 %, copies 0 %, the "
            "disk 0 %, "
            "samples 8 %.");
  EXPECT_TRUE(has(advice(after({.data = 1}, 100), {}, s, {}), "20 timed steps"));
  EXPECT_EQ(advice(computes, {"this", "that"}, s, {}),
            "What would help: this. Also: that. Computation takes 97 % of the step.");
}

}  // namespace
}  // namespace zeno::report
