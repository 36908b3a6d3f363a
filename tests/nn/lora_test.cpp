// Adapters in blocks: gradients against finite differences (with dropout), the merged weight, recompute
// modes, subsets of fused weights; noise on embeddings.
#include "zeno/nn/lora.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/nn/finite_difference.h"
#include "tests/nn/tiny_model.h"
#include "tests/support/tiny_decoder.h"

namespace zeno::test {
namespace {

using nn::Recompute;

constexpr nn::BatchShape kLoraShape{2, 13};
constexpr int64_t kRank = 3;
constexpr float kScale = 1.5f;

std::shared_ptr<const nn::LoraOptions> lora(const std::string& modules, float dropout = 0) {
  return std::make_shared<nn::LoraOptions>(nn::LoraOptions{
      .rank = kRank, .scale = kScale, .dropout = dropout, .adapts = [=](std::string_view name) {
        return modules.find(std::string(name.substr(name.rfind('.') + 1)) + ",") != std::string::npos;
      }});
}
constexpr const char* kAll = "q,k,v,o,gate,up,down,";
constexpr const char* kSome = "q,v,gate,down,";

TinyModel make_model(Family family, std::shared_ptr<const nn::LoraOptions> options,
                     DType compute = DType::f32, nn::BatchShape shape = kLoraShape) {
  return TinyModel(tiny_decoder(family, {.lora = std::move(options)}),
                   random_batch(shape, 61, 5, family != Family::gpt2), compute);
}

class Lora : public ::testing::TestWithParam<Family> {};

TEST_P(Lora, GradientsMatchFiniteDifferences) {
  for (const char* modules : {kAll, kSome}) {
    TinyModel model = make_model(GetParam(), lora(modules, 0.2f));
    model.draw(99);
    model.train(Recompute::none);
    std::map<std::string, std::vector<float>> gradients;
    for (const auto& [name, p] : model.parameters()) {
      EXPECT_EQ(p.trainable, p.adapter) << name;
      if (p.trainable) gradients[name] = model.gradient(name);
    }
    EXPECT_EQ(gradients.size(), modules == kAll ? 16u : GetParam() == Family::gpt2 ? 8u : 12u);
    expect_finite_differences(model, gradients);
  }
}

// W + s·B·A in a plain model gives the same loss.
TEST_P(Lora, EqualsTheMergedWeight) {
  TinyModel adapted = make_model(GetParam(), lora(kSome)), plain = make_model(GetParam(), nullptr);
  const double loss = adapted.evaluate();
  for (auto& [name, p] : plain.parameters()) plain.weights(name) = adapted.weights(name);
  EXPECT_GT(std::abs(plain.evaluate() - loss), 1e-3);
  for (const auto& [name, p] : plain.parameters()) {
    if (!name.ends_with(".weight") || !adapted.parameters().contains(nn::lora_a_name(name))) continue;
    const std::vector<float>&a = adapted.weights(nn::lora_a_name(name)),
          &b = adapted.weights(nn::lora_b_name(name));
    const nn::Parameter& low = adapted.parameters().at(nn::lora_a_name(name));
    std::vector<float>& w = plain.weights(name);
    int64_t b_row = 0;
    for (size_t i = 0; i < low.files.size(); ++i) {
      const auto module = std::find_if(p.files.begin(), p.files.end(), [&](const nn::FileSlice& f) {
        return nn::lora_a_file(nn::module_of(f.name)) == low.files[i].name;
      });
      ASSERT_NE(module, p.files.end());
      for (int64_t r = 0; r < module->rows; ++r, ++b_row) {
        for (int64_t c = 0; c < p.cols; ++c) {
          double sum = 0;
          for (int64_t k = 0; k < kRank; ++k)
            sum += double(b[size_t(b_row * kRank + k)]) * a[size_t((int64_t(i) * kRank + k) * p.cols + c)];
          w[size_t((module->row + r) * p.cols + c)] += float(kScale * sum);
        }
      }
    }
  }
  EXPECT_NEAR(plain.evaluate(), loss, 2e-5 * loss);
}

TEST_P(Lora, RecomputeModesAndPartsOfRowsGiveTheSameBits) {
  constexpr nn::BatchShape kLarge{5, 30};  // more rows than a pass without backward takes at once
  for (DType compute : {DType::f32, DType::bf16}) {
    TinyModel reference = make_model(GetParam(), lora(kSome, 0.3f), compute, kLarge);
    reference.draw(7);
    const double loss = reference.train(Recompute::none);
    EXPECT_EQ(reference.evaluate(), loss);
    for (Recompute mode : {Recompute::selective, Recompute::full}) {
      TinyModel model = make_model(GetParam(), lora(kSome, 0.3f), compute, kLarge);
      model.draw(7);
      EXPECT_EQ(model.train(mode), loss);
      for (const auto& [name, p] : model.parameters())
        EXPECT_EQ(model.gradient(name), reference.gradient(name)) << name << " mode " << int(mode);
    }
    reference.draw(8);
    EXPECT_NE(reference.evaluate(), loss);
  }
}

std::string name_of_family(const testing::TestParamInfo<Family>& family) {
  const char* names[] = {"gpt2", "llama", "qwen3"};
  return names[int(family.param)];
}
INSTANTIATE_TEST_SUITE_P(Families, Lora, ::testing::Values(Family::gpt2, Family::llama, Family::qwen3),
                         name_of_family);

TEST(LoraParameters, NamesShapesInitAndFiles) {
  const nn::LayerList model = tiny_decoder(Family::llama, {.lora = lora("q,v,")});
  const std::vector<nn::Parameter> all = model.layers[1]->parameters();
  std::vector<nn::Parameter> adapters;
  for (const nn::Parameter& p : all) {
    if (p.adapter) adapters.push_back(p);
  }
  ASSERT_EQ(adapters.size(), 2u);
  EXPECT_EQ(adapters[0].name, "blocks.0.attn.qkv.lora_a");
  EXPECT_EQ(adapters[0].rows, 2 * kRank);
  EXPECT_EQ(adapters[0].cols, 32);
  EXPECT_EQ(int(adapters[0].init.kind), int(nn::Init::Kind::uniform));
  EXPECT_FLOAT_EQ(adapters[0].init.bound, float(1 / std::sqrt(32.0)));
  ASSERT_EQ(adapters[0].files.size(), 2u);
  EXPECT_EQ(adapters[0].files[1].name, "base_model.model.blocks.0.v.lora_A.weight");
  EXPECT_EQ(adapters[0].files[1].row, kRank);
  EXPECT_EQ(adapters[1].rows, 32 + 16);  // q and v
  EXPECT_EQ(adapters[1].cols, kRank);
  EXPECT_EQ(int(adapters[1].init.kind), int(nn::Init::Kind::zeros));
  EXPECT_EQ(adapters[1].files[1].row, 32);
}

// With B at zero an adapter changes nothing.
TEST(LoraParameters, FreshAdaptersHaveNoEffect) {
  TinyModel adapted = make_model(Family::llama, lora(kAll)), plain = make_model(Family::llama, nullptr);
  for (auto& [name, p] : plain.parameters()) plain.weights(name) = adapted.weights(name);
  for (const auto& [name, p] : adapted.parameters()) {
    if (name.ends_with(".lora_b")) std::ranges::fill(adapted.weights(name), 0.0f);
  }
  EXPECT_EQ(adapted.evaluate(), plain.evaluate());
}

TEST(Neftune, AddsNoiseOfItsSizeInTrainingOnly) {
  TinyModel plain(tiny_decoder(Family::llama), random_batch(kLoraShape, 61, 5));
  TinyModel noisy(tiny_decoder(Family::llama, {.neftune_alpha = 5}), random_batch(kLoraShape, 61, 5));
  for (auto& [name, p] : plain.parameters()) plain.weights(name) = noisy.weights(name);
  EXPECT_EQ(noisy.evaluate(), plain.evaluate());
  noisy.draw(3);
  plain.draw(3);
  EXPECT_NE(noisy.evaluate(), plain.evaluate());

  const nn::LayerList model = tiny_decoder(Family::llama, {.neftune_alpha = 5});
  KernelStream stream;
  Memory table(DType::f32, 61, 32), y(DType::f32, 26, 32);
  table.zero();
  const std::vector<int32_t> zeros(26);
  int64_t key = 3;
  const Tensor ids{const_cast<int32_t*>(zeros.data()), DType::i32, 1, 26};
  const nn::Batch batch{
      .shape = kLoraShape, .tokens = ids, .positions = ids, .noise = {&key, DType::i64, 1, 1}};
  const std::vector<Tensor> params{table.view()};
  model.layers[0]->forward({.stream = stream.ref(), .batch = batch, .params = params, .y = y.view()},
                           Recompute::none);
  stream.sync();
  float largest = 0;
  for (float v : to_floats(y.view())) largest = std::max(largest, std::abs(v));
  const double size = 5 / std::sqrt(13.0 * 32.0);  // alpha / sqrt(T·C)
  EXPECT_LE(largest, size);
  EXPECT_GT(largest, 0.98 * size);
}

}  // namespace
}  // namespace zeno::test
