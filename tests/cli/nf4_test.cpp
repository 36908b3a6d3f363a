// A base in four bits as a user meets it: training, the adapter it leaves, evaluation, the plan, and what is
// refused.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/command.h"
#include "tests/support/plain_flags.h"
#include "tests/support/temp_dir.h"

namespace zeno::test {
namespace {

using nlohmann::json;

class Nf4Cli : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(zeno("init --arch llama --hidden 128 --layers 2 --heads 4 --kv-heads 2 --vocab 260 --out " +
                   path("model"))
                  .exit_code,
              0);
    std::string lines;
    for (int i = 0; i < 40; ++i) {
      const std::string word(size_t(1 + i % 5), char('a' + i * 7 % 26));
      lines += json{{"prompt", "say " + word + ": "}, {"completion", word}}.dump() + "\n";
    }
    dir_.write("train.jsonl", lines);
  }

  std::string path(const std::string& name) const { return (dir_.path() / name).string(); }
  CommandResult zeno(const std::string& arguments) const {
    return run_command(std::string(ZENO_BINARY_DIR) + "/zeno " + arguments);
  }
  std::string shape() const { return " --model " + path("model") + " --seq-len 48 --device cpu "; }
  std::string data() const { return "--data " + path("train.jsonl") + " --cache " + path("cache") + " "; }
  CommandResult train(const std::string& out, const std::string& more) const {
    return zeno("train" + shape() + data() + "--ranks 2 --micro-batch 2 --steps 3 --lr 1e-2 --out " +
                path(out) + plain_flags("--lr " + more) + more);
  }
  std::string text(const std::string& name) const {
    std::stringstream all;
    all << std::ifstream(path(name)).rdbuf();
    return all.str();
  }
  std::string weights_hash(const std::string& out) const {
    const std::string lines = text(out + "/metrics.jsonl");
    const size_t done = lines.find("{\"event\":\"done\"");
    return done == std::string::npos ? "none" : json::parse(lines.substr(done))["weights_hash"].dump();
  }
  json parsed(const CommandResult& result) const {
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return json::parse(result.output.substr(result.output.find('{')));
  }

 private:
  TempDir dir_;
};

TEST_F(Nf4Cli, TrainsAnAdapterThatLoadsOnAnyBase) {
  const CommandResult whole = train("whole", "--lora-rank 4 --quantize-base nf4 --stage 0");
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  ASSERT_EQ(train("sharded", "--lora-rank 4 --quantize-base nf4 --stage 3").exit_code, 0);
  ASSERT_EQ(train("plain", "--lora-rank 4 --stage 0").exit_code, 0);
  EXPECT_EQ(weights_hash("sharded"), weights_hash("whole"));
  EXPECT_NE(weights_hash("plain"), weights_hash("whole"));
  EXPECT_NE(weights_hash("whole"), "none");

  // Nothing in the adapter speaks of four bits, and it goes onto the base in full.
  EXPECT_EQ(text("whole/adapter_config.json"), text("plain/adapter_config.json"));
  EXPECT_EQ(text("whole/adapter_model.safetensors"), text("sharded/adapter_model.safetensors"));
  const std::string eval = "eval" + shape() + data() + "--json --adapter " + path("whole") + " ";
  const double on_base = parsed(zeno(eval + "2>/dev/null"))["loss"],
               on_nf4 = parsed(zeno(eval + "--quantize-base nf4 2>/dev/null"))["loss"];
  EXPECT_NE(on_base, on_nf4);
  EXPECT_NEAR(on_base, on_nf4, 0.05 * on_base);
  EXPECT_EQ(
      zeno("export --merge " + path("whole") + " " + path("merged") + " --base " + path("model")).exit_code,
      0);
}

TEST_F(Nf4Cli, ThePlanShrinksTheParameters) {
  const auto parameters = [&](const std::string& more) {
    const json plan =
        parsed(zeno("plan" + shape() + "--lora-rank 4 --dtype bf16 --micro-batch 2 --json " + more));
    return plan["bytes"]["device"]["parameters"].get<int64_t>();
  };
  // 2 blocks of 128 × (256 + 128) + 3 · 128 · 344 weights or so, from 16 bits to 4.13.
  EXPECT_LT(parameters("--quantize-base nf4"), parameters("") - 2 * 128 * 1024 * 10 / 8);
}

TEST_F(Nf4Cli, NeedsAdaptersToTrain) {
  for (const std::string& command : {"train --out " + path("out") + " " + data(), std::string("plan ")}) {
    const CommandResult result = zeno(command + shape() + "--quantize-base nf4");
    EXPECT_EQ(result.exit_code, 2) << result.output;
    EXPECT_NE(result.output.find("--lora-rank"), std::string::npos) << result.output;
  }
  const CommandResult other = train("out", "--lora-rank 4 --quantize-base int8");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.output.find("nf4"), std::string::npos) << other.output;
}

}  // namespace
}  // namespace zeno::test
