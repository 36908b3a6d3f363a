#include "zeno/config/tuning.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace zeno::config {
namespace {

const std::string kGolden = std::string(ZENO_SOURCE_DIR) + "/tests/golden/";

TrainConfig lora_of(int64_t rank) {
  TrainConfig config;
  config.run.model = kGolden + "model_llama_gqa";
  config.lora.rank = rank;
  return config;
}

// Goes on from an adapter of rank 4, alpha 8, on q_proj and v_proj.
TrainConfig continued() {
  TrainConfig config = lora_of(0);
  config.lora.adapter = kGolden + "lora/llama_qv";
  return config;
}

TEST(Tuning, TargetsMayBeJoinedByCommas) {
  TrainConfig config = lora_of(8);
  config.lora.targets = {"q_proj,v_proj", "o_proj,"};
  EXPECT_EQ(tuning_of(config).lora->targets, (std::vector<std::string>{"q_proj", "v_proj", "o_proj"}));
  config.lora.targets = {R"(.*\.\d{1,2}\.self_attn\.q_proj)"};  // the comma of an expression stays
  EXPECT_EQ(tuning_of(config).lora->targets, config.lora.targets);
}

TEST(Tuning, WithoutARankOtherSettingsOfAdaptersAreRefused) {
  TrainConfig config = lora_of(0);
  EXPECT_FALSE(tuning_of(config).lora);
  config.lora.targets = {"q_proj"};
  test::expect_error(ErrorKind::usage, {"--lora-rank"}, [&] { tuning_of(config); });
  config = lora_of(0);
  config.lora.alpha = 16;
  test::expect_error(ErrorKind::usage, {"--lora-rank"}, [&] { tuning_of(config); });
  config = lora_of(0);
  config.lora.quantize_base = BaseDtype::nf4;
  test::expect_error(ErrorKind::usage, {"--quantize-base", "--lora-rank"}, [&] { tuning_of(config); });
  EXPECT_FALSE(tuning_of(config, false).lora);
}

TEST(Tuning, AnAdapterToGoOnFromDecides) {
  const model::LoraOptions adapter = *tuning_of(continued()).lora;
  TrainConfig config = continued();
  config.lora.rank = adapter.rank;  // the same again is fine, in other words too
  config.lora.alpha = adapter.alpha;
  config.lora.targets = {"self_attn.v_proj,self_attn.q_proj"};
  EXPECT_EQ(tuning_of(config).lora->rank, adapter.rank);

  config = continued();
  config.lora.rank = adapter.rank + 1;
  test::expect_error(ErrorKind::usage, {fmt::format("got {}, expected {}", adapter.rank + 1, adapter.rank)},
                     [&] { tuning_of(config); });
  config = continued();
  config.lora.alpha = adapter.alpha + 1;
  test::expect_error(ErrorKind::usage, {fmt::format("got {}, expected {}", adapter.alpha + 1, adapter.alpha)},
                     [&] { tuning_of(config); });
  config = continued();
  config.lora.rslora = true;
  test::expect_error(ErrorKind::usage, {"--rslora"}, [&] { tuning_of(config); });
  config = continued();
  config.lora.targets = {"all-linear"};
  test::expect_error(ErrorKind::usage, {"got all-linear, expected q_proj v_proj"},
                     [&] { tuning_of(config); });
}

}  // namespace
}  // namespace zeno::config
