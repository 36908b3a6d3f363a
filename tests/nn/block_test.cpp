// Blocks of every family: gradients against finite differences, recompute modes, evaluation, frozen
// parameters, 16-bit types.
#include "zeno/nn/block.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/nn/finite_difference.h"
#include "tests/nn/tiny_model.h"
#include "tests/support/expect_error.h"
#include "zeno/nn/embedding.h"
#include "zeno/nn/lm_head.h"

namespace zeno::test {
namespace {

using nn::BlockOptions;
using nn::Recompute;

constexpr int64_t kBlockHidden = 32, kBlockVocab = 37, kLearnedPositions = 64;
constexpr nn::BatchShape kShape{2, 13};

struct BlockFamily {
  std::string name;
  BlockOptions block;
  bool documents = false;
  bool tied = false;
};

std::vector<BlockFamily> block_families() {
  const BlockOptions base{
      .hidden = kBlockHidden, .heads = 4, .kv_heads = 2, .head_dim = 8, .intermediate = 40};
  BlockFamily llama{.name = "llama", .block = base, .documents = true};
  BlockFamily gpt2{.name = "gpt2", .block = base, .tied = true};
  gpt2.block.kv_heads = 4;
  gpt2.block.norm = nn::Norm::layer;
  gpt2.block.mlp = BlockOptions::Mlp::gelu_tanh;
  gpt2.block.qkv_bias = gpt2.block.out_bias = gpt2.block.mlp_bias = true;
  BlockFamily qwen2{.name = "qwen2", .block = base, .tied = true};
  qwen2.block.qkv_bias = true;
  qwen2.block.mlp = BlockOptions::Mlp::gelu_exact;
  BlockFamily qwen3{.name = "qwen3", .block = base, .documents = true};
  qwen3.block.qk_norm = true;
  qwen3.block.head_dim = 16;
  qwen3.block.window = 4;
  for (BlockFamily* family : {&llama, &qwen2, &qwen3}) {
    family->block.rope = std::make_shared<nn::RopeTable>(kLearnedPositions, family->block.head_dim, 10000.0);
  }
  return {llama, gpt2, qwen2, qwen3};
}

nn::LayerList make_layers(const BlockFamily& family, int blocks) {
  BlockOptions options = family.block;
  const bool learned_positions = !options.rope;
  nn::LayerList list;
  list.hidden = kBlockHidden;
  list.vocab = kBlockVocab;
  list.layers.push_back(nn::make_embedding({.vocab = kBlockVocab,
                                            .hidden = kBlockHidden,
                                            .positions = learned_positions ? kLearnedPositions : 0,
                                            .table = {},
                                            .position_table = {},
                                            .tied = family.tied}));
  for (int i = 0; i < blocks; ++i) {
    options.name = "blocks." + std::to_string(i);
    list.layers.push_back(nn::make_block(options));
  }
  list.loss = nn::make_lm_head({.hidden = kBlockHidden,
                                .vocab = kBlockVocab,
                                .norm = options.norm,
                                .weight_name = family.tied ? "embed.weight" : "lm_head.weight",
                                .norm_files = {},
                                .norm_bias_files = {},
                                .weight_files = {}});
  return list;
}

TinyModel make_model(const BlockFamily& family, int blocks, DType compute = DType::f32, int threads = 2,
                     DType grad = DType::f32) {
  return TinyModel(make_layers(family, blocks), random_batch(kShape, kBlockVocab, 5, family.documents),
                   compute, grad, threads);
}

class Block : public ::testing::TestWithParam<BlockFamily> {};

TEST_P(Block, GradientsMatchFiniteDifferences) {
  TinyModel model = make_model(GetParam(), 1);
  model.train(Recompute::none);
  std::map<std::string, std::vector<float>> gradients;
  for (const auto& [name, p] : model.parameters()) gradients[name] = model.gradient(name);
  expect_finite_differences(model, gradients);
}

TEST_P(Block, RecomputeModesAndThreadsGiveTheSameBits) {
  for (DType compute : {DType::f32, DType::bf16, DType::f16}) {
    TinyModel reference = make_model(GetParam(), 2, compute);
    const double loss = reference.train(Recompute::none);
    EXPECT_TRUE(std::isfinite(loss));
    for (Recompute mode : {Recompute::none, Recompute::selective, Recompute::full}) {
      TinyModel model = make_model(GetParam(), 2, compute, 1);
      EXPECT_EQ(model.train(mode), loss);
      for (const auto& [name, p] : model.parameters())
        EXPECT_EQ(model.gradient(name), reference.gradient(name)) << name << " mode " << int(mode);
    }
  }
}

// More rows than evaluation handles at once.
TEST_P(Block, EvaluationEqualsTraining) {
  constexpr nn::BatchShape kLarge{3, 50};
  TinyModel model(make_layers(GetParam(), 2), random_batch(kLarge, kBlockVocab, 5, GetParam().documents));
  const double trained = model.train(Recompute::selective);
  EXPECT_EQ(model.evaluate(), trained);
  EXPECT_GE(model.hits(), 0);
  EXPECT_LE(model.hits(), kLarge.rows());
}

TEST_P(Block, GradientsAreAddedAndFrozenOnesLeftAlone) {
  TinyModel all = make_model(GetParam(), 2);
  all.train(Recompute::selective);
  for (const auto& [frozen, parameter] : all.parameters()) {
    for (Recompute mode : {Recompute::none, Recompute::selective}) {
      TinyModel model = make_model(GetParam(), 2);
      model.freeze(frozen);
      model.train(mode);
      for (const auto& [name, p] : model.parameters()) {
        const std::vector<float> g = model.gradient(name);
        if (name == frozen)
          EXPECT_EQ(g, std::vector<float>(g.size(), 0.0f)) << name;
        else
          EXPECT_EQ(g, all.gradient(name)) << name << " with " << frozen << " frozen";
      }
    }
  }
}

TEST_P(Block, SixteenBitsAreClose) {
  TinyModel exact = make_model(GetParam(), 1);
  const double loss = exact.train(Recompute::none);
  for (const auto& [compute, tolerance] : {std::pair{DType::bf16, 0.05}, {DType::f16, 0.01}}) {
    constexpr float kScale = 64;
    TinyModel model = make_model(GetParam(), 1, compute, 2, compute);
    EXPECT_NEAR(model.train(Recompute::selective, kScale), loss, tolerance * loss);
    for (const auto& [name, p] : model.parameters()) {
      std::vector<float> g = model.gradient(name);
      for (float& value : g) value /= kScale;
      EXPECT_LT(relative_error(g, exact.gradient(name)), 2 * tolerance) << name << " " << name_of(compute);
    }
  }
}

TEST_P(Block, SizesOrderAndFlops) {
  const auto block = nn::make_block(GetParam().block);
  const auto none = block->sizes(kShape, DType::bf16, Recompute::none);
  const auto selective = block->sizes(kShape, DType::bf16, Recompute::selective);
  const auto full = block->sizes(kShape, DType::bf16, Recompute::full);
  EXPECT_GT(none.saved, selective.saved);
  EXPECT_GT(selective.saved, 0u);
  EXPECT_EQ(full.saved, 0u);
  EXPECT_EQ(none.saved % 64, 0u);
  double matmuls = 0;
  for (const nn::Parameter& p : block->parameters())
    if (p.rows > 1) matmuls += 2.0 * double(p.count() * kShape.rows());
  const nn::LayerWork work = block->work(kShape, DType::bf16, Recompute::none);
  EXPECT_DOUBLE_EQ(work.forward.matmul_flops, matmuls);
  EXPECT_DOUBLE_EQ(work.backward.matmul_flops, 2 * matmuls);
  const BlockOptions& o = GetParam().block;
  double pairs = 0;
  for (int64_t t = 0; t < kShape.seq; ++t) pairs += double(o.window > 0 ? std::min(t + 1, o.window) : t + 1);
  EXPECT_DOUBLE_EQ(work.forward.attention_flops,
                   4.0 * double(kShape.batch) * pairs * double(o.heads * o.head_dim));
}

INSTANTIATE_TEST_SUITE_P(Families, Block, ::testing::ValuesIn(block_families()),
                         [](const auto& family) { return family.param.name; });

TEST(BlockParameters, NamesShapesAndDecay) {
  BlockOptions o{.hidden = 8, .heads = 2, .kv_heads = 1, .head_dim = 16, .intermediate = 10};
  o.name = "blocks.3";
  o.qkv_bias = o.qk_norm = true;
  o.rope = std::make_shared<nn::RopeTable>(4, 16, 1e4);
  o.files.qkv = {{.name = "q", .row = 0, .rows = 32}, {.name = "kv", .row = 32, .rows = 32}};
  std::string seen;
  for (const nn::Parameter& p : nn::make_block(o)->parameters()) {
    seen += fmt::format("{}[{},{}]{} ", p.name, p.rows, p.cols, p.decay ? "*" : "");
    EXPECT_EQ(p.files.size(), p.name == "blocks.3.attn.qkv.weight" ? 2u : 0u);
  }
  EXPECT_EQ(
      seen,
      "blocks.3.attn_norm.weight[1,8] blocks.3.attn.qkv.weight[64,8]* blocks.3.attn.qkv.bias[1,64] "
      "blocks.3.attn.q_norm.weight[1,16] blocks.3.attn.k_norm.weight[1,16] blocks.3.attn.out.weight[8,32]* "
      "blocks.3.mlp_norm.weight[1,8] blocks.3.mlp.up.weight[20,8]* blocks.3.mlp.down.weight[8,10]* ");
}

TEST(BlockOptions, ImpossibleSizesAreRefused) {
  const BlockOptions good{.hidden = 8, .heads = 2, .kv_heads = 1, .head_dim = 16, .intermediate = 10};
  const auto refused = [&](const std::string& what, const auto& change) {
    BlockOptions bad = good;
    bad.name = "blocks.3";
    change(bad);
    expect_error(ErrorKind::data, {"blocks.3", what}, [&] { nn::make_block(bad); });
  };
  refused("head_dim: got 0", [](BlockOptions& o) { o.head_dim = 0; });
  refused("head_dim: got 512", [](BlockOptions& o) { o.head_dim = 512; });
  refused("kv_heads: got 3", [](BlockOptions& o) { o.kv_heads = 3; });
  refused("kv_heads: got 0", [](BlockOptions& o) { o.kv_heads = 0; });
  refused("q/k-norm: got no rope", [](BlockOptions& o) { o.qk_norm = true; });
  refused("rope table: got 8", [](BlockOptions& o) { o.rope = std::make_shared<nn::RopeTable>(4, 8, 1e4); });
}

}  // namespace
}  // namespace zeno::test
