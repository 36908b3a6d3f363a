// Generation from real model folders against transformers (tests/golden/generate), and what must hold
// whatever the model says: batches, cache reuse and parts of a prompt change nothing, limits are kept.
#include "zeno/generate/generator.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/expect_error.h"
#include "tests/support/golden.h"
#include "zeno/base/rng.h"
#include "zeno/model/layers.h"
#include "zeno/model/weights.h"

namespace zeno::test {
namespace {

using generate::Generation;
using generate::Generator;
using Prompts = std::vector<std::vector<int32_t>>;

Path folder_of(const std::string& name) { return Path(ZENO_SOURCE_DIR) / "tests/golden" / ("model_" + name); }

generate::GenerateOptions greedy(int64_t tokens) {
  return {.sampling = {.temperature = 0}, .max_new_tokens = tokens, .stops = {}, .vocab = 0};
}

Prompts random_prompts(size_t count, int64_t vocab, uint64_t seed) {
  Prompts prompts(count);
  for (size_t i = 0; i < count; ++i) {
    const size_t length = 1 + random_bits(seed, i, 0) % 12;
    for (size_t t = 0; t < length; ++t)
      prompts[i].push_back(int32_t(random_bits(seed, i, t + 1) % uint64_t(vocab)));
  }
  return prompts;
}

class GoldenModel : public testing::TestWithParam<std::string> {};

TEST_P(GoldenModel, GeneratesWhatTransformersDoes) {
  const Golden golden("generate/" + GetParam() + ".safetensors");
  Generator generator = Generator::open(folder_of(GetParam()), {.sequences = 2, .threads = 2});
  Prompts prompts;
  for (int i = 0; golden.has(fmt::format("prompt.{}", i)); ++i)
    prompts.push_back(golden.ints(fmt::format("prompt.{}", i)));
  ASSERT_EQ(prompts.size(), 4u);
  const int64_t count = golden.view("tokens.0").cols;
  const std::vector<Generation> results = generator.generate(prompts, greedy(count));
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(results[i].tokens, golden.ints(fmt::format("tokens.{}", i))) << "prompt " << i;
    EXPECT_EQ(results[i].finish, generate::Finish::length);
  }
}

TEST_P(GoldenModel, HasItsLogits) {
  const Golden golden("generate/" + GetParam() + ".safetensors");
  const model::ModelConfig config = model::load_config(folder_of(GetParam()));
  const model::WeightReader weights(folder_of(GetParam()),
                                    model::parameter_table(model::build_layers(config, 1)));
  generate::Decoder decoder(
      config,
      [&](const auto& p, int64_t begin, int64_t end, float* out) { weights.read(p, begin, end, out); },
      {.threads = 1});
  double worst = 0;
  for (int i = 0; i < 4; ++i) {
    const std::vector<int32_t> prompt = golden.ints(fmt::format("prompt.{}", i)),
                               tokens = golden.ints(fmt::format("tokens.{}", i));
    const Tensor expected = golden.view(fmt::format("logits.{}", i));
    std::span<float> logits = decoder.feed(0, 0, prompt);
    for (int64_t t = 0; t < expected.rows; ++t) {
      double gap = 0, norm = 0;
      for (int64_t v = 0; v < expected.cols; ++v) {
        const double want = expected.row<float>(t)[v], got = logits[size_t(v)];
        gap += (got - want) * (got - want);
        norm += want * want;
      }
      worst = std::max(worst, std::sqrt(gap / norm));
      const generate::Decoder::Next next{0, int32_t(prompt.size()) + int32_t(t), tokens[size_t(t)]};
      logits = decoder.step(std::span(&next, 1));
    }
  }
  EXPECT_LT(worst, 1e-5);
  RecordProperty("worst", fmt::format("{:.1e}", worst));
}

INSTANTIATE_TEST_SUITE_P(Transformers, GoldenModel,
                         testing::Values("gpt2", "llama_gqa", "llama_tied", "mistral", "qwen2", "qwen3"),
                         [](const auto& model) { return model.param; });

TEST(Generator, CompanyDoesNotChangeASequence) {
  const Prompts prompts = random_prompts(7, 101, 5);
  generate::GenerateOptions options{.sampling = {.temperature = 0.9, .top_p = 0.95, .seed = 6},
                                    .max_new_tokens = 9,
                                    .stops = {},
                                    .vocab = 0};
  std::vector<Generation> expected;
  for (const int64_t sequences : {1, 3, 8}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Generator generator =
          Generator::open(folder_of("llama_gqa"), {.dtype = dtype, .sequences = sequences, .threads = 2});
      const std::vector<Generation> results = generator.generate(prompts, options);
      if (dtype != DType::f32) {
        EXPECT_EQ(results.size(), prompts.size());
        continue;
      }
      if (expected.empty()) expected = results;
      for (size_t i = 0; i < prompts.size(); ++i)
        EXPECT_EQ(results[i].tokens, expected[i].tokens) << sequences << " at once, prompt " << i;
    }
  }
}

TEST(Generator, AContinuedPromptIsComputedFromWhereItDiffers) {
  Generator generator = Generator::open(folder_of("qwen3"), {.threads = 1});
  Generator fresh = Generator::open(folder_of("qwen3"), {.threads = 1});
  std::vector<int32_t> prompt = random_prompts(1, 131, 9)[0];
  const std::vector<int32_t> first = generator.generate({prompt}, greedy(6))[0].tokens;
  prompt.insert(prompt.end(), first.begin(), first.end());
  prompt.push_back(5);
  const std::vector<int32_t> second = generator.generate({prompt}, greedy(6))[0].tokens;
  EXPECT_LE(generator.stats().prompt_tokens, 2);
  EXPECT_EQ(second, fresh.generate({prompt}, greedy(6))[0].tokens);
  prompt[1] = prompt[1] == 0 ? 1 : 0;  // another past
  EXPECT_EQ(generator.generate({prompt}, greedy(6))[0].tokens, fresh.generate({prompt}, greedy(6))[0].tokens);
}

TEST(Generator, EndsAtStopsLengthContextAndWhenTold) {
  Generator generator = Generator::open(folder_of("gpt2"), {.sequences = 2, .context = 20, .threads = 1});
  const std::vector<int32_t> prompt = {3, 14, 15, 92, 65};
  const Generation all = generator.generate({prompt}, greedy(1000))[0];
  EXPECT_EQ(all.finish, generate::Finish::context);
  EXPECT_EQ(all.tokens.size(), 15u);
  generate::GenerateOptions options = greedy(1000);
  options.stops = {all.tokens[4]};
  const auto end = std::ranges::find(all.tokens, all.tokens[4]);
  const Generation stopped = generator.generate({prompt}, options)[0];
  EXPECT_EQ(stopped.finish, generate::Finish::stop);
  EXPECT_EQ(stopped.tokens, std::vector<int32_t>(all.tokens.begin(), end));
  EXPECT_EQ(generator.generate({prompt}, greedy(3))[0].finish, generate::Finish::length);
  std::vector<int32_t> seen;
  const std::vector<Generation> told =
      generator.generate({prompt, {1}}, greedy(1000), [&](size_t i, int32_t token) {
        if (i == 0) seen.push_back(token);
        return i != 0 || seen.size() < 4;
      });
  EXPECT_EQ(told[0].finish, generate::Finish::caller);
  EXPECT_EQ(told[0].tokens, seen);
  EXPECT_EQ(told[1].finish, generate::Finish::context);
}

TEST(Generator, LeavesOutTokensThatTheTokenizerLacks) {
  Generator generator = Generator::open(folder_of("gpt2"), {.threads = 1});
  generate::GenerateOptions options{.sampling = {.temperature = 2, .repetition_penalty = 1.2},
                                    .max_new_tokens = 20,
                                    .stops = {},
                                    .vocab = 40};
  const std::vector<int32_t> tokens = generator.generate({{96, 1}}, options)[0].tokens;
  EXPECT_EQ(tokens.size(), 20u);
  EXPECT_LT(std::ranges::max(tokens), 40);
}

TEST(Generator, LongPromptsGoInParts) {
  // More tokens than one part; the positions of this Llama end at 64, so a wider one is made from its config.
  model::ModelConfig config = model::load_config(folder_of("llama_tied"));
  config.max_positions = 700;
  const model::WeightReader weights(folder_of("llama_tied"),
                                    model::parameter_table(model::build_layers(config, 1)));
  const auto values = [&](const auto& p, int64_t begin, int64_t end, float* out) {
    weights.read(p, begin, end, out);
  };
  generate::Decoder whole(config, values, {.threads = 2}), steps(config, values, {.threads = 1});
  std::vector<int32_t> prompt;
  for (uint64_t i = 0; i < 600; ++i) prompt.push_back(int32_t(random_bits(1, 2, i) % 103));
  const std::span<float> expected = whole.feed(0, 0, prompt);
  steps.feed(0, 0, std::span(prompt).first(511));
  std::span<float> logits;
  for (int32_t t = 511; t < 600; ++t) {
    const generate::Decoder::Next next{0, t, prompt[size_t(t)]};
    logits = steps.step(std::span(&next, 1));
  }
  EXPECT_TRUE(std::ranges::equal(logits, expected));
}

TEST(Generator, SaysWhatIsWrong) {
  Generator generator = Generator::open(folder_of("llama_gqa"), {.context = 16, .threads = 1});
  expect_error(ErrorKind::usage, {"prompt 2", "no tokens"}, [&] {
    generator.generate({{1}, {}}, greedy(1));
  });
  expect_error(ErrorKind::usage, {"prompt 1", "16 tokens", "context"},
               [&] { generator.generate({std::vector<int32_t>(16)}, greedy(1)); });
  expect_error(ErrorKind::data, {"token 101", "100"}, [&] { generator.generate({{101}}, greedy(1)); });
  expect_error(ErrorKind::usage, {"max-new-tokens"}, [&] { generator.generate({{1}}, greedy(0)); });
  expect_error(ErrorKind::usage, {"context", "65", "64"},
               [] { Generator::open(folder_of("llama_gqa"), {.context = 65}); });
  // Thousands of TiB: more than any machine has that runs this.
  model::ModelConfig huge = model::load_config(folder_of("llama_gqa"));
  huge.max_positions = int64_t(1) << 30;
  huge.layers = 1000;
  huge.hidden = int64_t(1) << 32;
  huge.windows.assign(1000, 0);
  expect_error(ErrorKind::memory, {"weights", "keys and values", "free"},
               [&] { generate::Decoder(huge, {}, {.context = 4096, .threads = 1}); });
}

}  // namespace
}  // namespace zeno::test
