// A whole fine-tune follows transformers: a tiny Llama that transformers wrote, 50 steps of padded chat-like
// samples with most tokens masked, AdamW, clipping, warm-up and cosine (tools/golden_curve.py). Losses within
// 1e-4 on one rank, and under ZeRO on several ranks with other micro-batches, packed and padded.
//
// With eps 1e-8 elements whose gradient is rounding noise move at random (see golden_models.py); here they
// are few, and the losses do not show it.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/temp_dir.h"
#include "zeno/base/file.h"
#include "zeno/base/log.h"
#include "zeno/train/trainer.h"

namespace zeno::train {
namespace {

using nlohmann::json;

const Path kGolden = Path(ZENO_SOURCE_DIR) / "tests" / "golden" / "curve";

struct Variant {
  int ranks, stage, micro_batch;
  std::string order;
};

std::vector<json> metrics_of(const Path& out) {
  std::istringstream text(read_file(out / "metrics.jsonl"));
  std::vector<json> steps;
  for (std::string line; std::getline(text, line);) {
    json value = json::parse(line);
    if (value.contains("grad_norm")) steps.push_back(std::move(value));
  }
  return steps;
}

std::vector<json> run(const json& expected, const Variant& variant, const Path& folder) {
  const auto number = [&](const char* key) { return expected.at(key).dump(); };
  const json config = {{"optimizer", {{"params", {{"betas", {expected["beta1"], expected["beta2"]}}}}}},
                       {"zeno", {{"shuffle", false}}}};
  replace_file(folder / "ds.json", config.dump());
  const std::vector<config::FlagOverride> flags = {
      {"zeno.model", kGolden, "--model"},
      {"zeno.data", kGolden / "train.jsonl", "--data"},
      {"zeno.out", folder / "out", "--out"},
      {"zeno.cache", folder / "cache", "--cache"},
      {"zeno.device", "cpu", "--device"},
      {"zeno.packing", "none", "--packing"},
      {"zeno.seq_len", number("seq"), "--seq-len"},
      {"zeno.steps", number("steps"), "--steps"},
      {"zeno.ranks", std::to_string(variant.ranks), "--ranks"},
      {"zeno.order", variant.order, "--order"},
      {"zero_optimization.stage", std::to_string(variant.stage), "--stage"},
      {"train_batch_size", number("batch"), "--train-batch"},
      {"train_micro_batch_size_per_gpu", std::to_string(variant.micro_batch), "--micro-batch"},
      {"optimizer.params.lr", number("lr"), "--lr"},
      {"optimizer.params.eps", number("eps"), "--eps"},
      {"optimizer.params.weight_decay", number("weight_decay"), "--weight-decay"},
      {"gradient_clipping", number("clip"), "--clip"},
      {"scheduler.type", "cosine", "--schedule"},
      {"scheduler.params.warmup_num_steps", "0.1", "--warmup"},
      {"scheduler.params.min_ratio", number("min_ratio"), "--min-lr-ratio"}};
  train(config::load_config((folder / "ds.json").string(), flags));
  return metrics_of(folder / "out");
}

TEST(Curve, FollowsTransformers) {
  set_log_level(LogLevel::warning);
  const json expected = json::parse(read_file(kGolden / "expected.json"));
  const std::vector<double> losses = expected.at("losses"), norms = expected.at("grad_norms"),
                            rates = expected.at("rates");
  ASSERT_LT(losses.back(), losses.front() / 2);  // it learns something
  for (const Variant& variant :
       {Variant{1, 0, 8, "horizontal"}, {2, 3, 1, "vertical"}, {4, 2, 1, "horizontal"}}) {
    const test::TempDir folder;
    const std::vector<json> steps = run(expected, variant, folder.path());
    ASSERT_EQ(steps.size(), losses.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      EXPECT_NEAR(steps[i].at("loss").get<double>(), losses[i], 1e-4)
          << "step " << i + 1 << " ranks " << variant.ranks;
      EXPECT_NEAR(steps[i].at("grad_norm").get<double>(), norms[i], 1e-3 * norms[i]) << "step " << i + 1;
      EXPECT_DOUBLE_EQ(steps[i].at("lr").get<double>(), rates[i]);
    }
  }
  set_log_level(LogLevel::info);
}

}  // namespace
}  // namespace zeno::train
