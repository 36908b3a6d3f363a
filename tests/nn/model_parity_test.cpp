// Whole models, layer by layer, against transformers (tests/golden/model_*): loss, every gradient, and ten
// AdamW steps. The step here is a plain one in double; the engine has its own parity test over the same
// files.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/nn/tiny_model.h"
#include "tests/support/golden.h"
#include "zeno/nn/block.h"
#include "zeno/nn/embedding.h"
#include "zeno/nn/lm_head.h"

namespace zeno::test {
namespace {

using nn::BlockOptions;
using nn::FileSlice;
using Slices = std::vector<FileSlice>;

constexpr int kLayers = 2;
constexpr double kModelTolerance = 1e-5;

struct Case {
  std::string name;
  int64_t vocab;
  BlockOptions block;
  bool tied;
  double theta;  // 0: learned positions
  RopeScaling scaling;
  bool packed;
};

std::vector<Case> cases() {
  const BlockOptions base{
      .hidden = 48, .heads = 6, .kv_heads = 2, .head_dim = 8, .intermediate = 80, .norm_eps = 1e-6f};
  const RopeScaling linear{.kind = RopeScaling::Kind::linear, .factor = 4};
  const RopeScaling llama3{.kind = RopeScaling::Kind::llama3, .factor = 8, .original_context = 16};
  Case gpt2{"gpt2", 97, base, true, 0, {}, true};
  gpt2.block = {.hidden = 48,
                .heads = 6,
                .kv_heads = 6,
                .head_dim = 8,
                .intermediate = 192,
                .norm = nn::Norm::layer,
                .mlp = BlockOptions::Mlp::gelu_tanh,
                .qkv_bias = true,
                .out_bias = true,
                .mlp_bias = true};
  Case llama_gqa{"llama_gqa", 101, base, false, 500000, llama3, true};
  llama_gqa.block.norm_eps = 1e-5f;
  Case llama_tied{"llama_tied", 103, base, true, 10000, linear, false};
  llama_tied.block.kv_heads = 6;
  Case mistral{"mistral", 107, base, false, 10000, {}, false};
  mistral.block.heads = 3;
  mistral.block.kv_heads = 1;
  mistral.block.head_dim = 16;
  mistral.block.window = 9;
  Case qwen2{"qwen2", 113, base, true, 1000000, {}, true};
  qwen2.block.qkv_bias = true;
  Case qwen3{"qwen3", 131, base, false, 1000000, {}, true};
  qwen3.block.heads = 4;
  qwen3.block.head_dim = 16;
  qwen3.block.qk_norm = true;
  return {gpt2, llama_gqa, llama_tied, mistral, qwen2, qwen3};
}

Slices one(const std::string& name, int64_t rows = 1, bool transposed = false) {
  return {{.name = name, .row = 0, .rows = rows, .transposed = transposed}};
}

nn::BlockFiles llama_files(const BlockOptions& o, const std::string& layer) {
  const int64_t q = o.heads * o.head_dim, k = o.kv_heads * o.head_dim, f = o.intermediate;
  const auto qkv = [&](const std::string& suffix) {
    return Slices{{.name = layer + "self_attn.q_proj." + suffix, .row = 0, .rows = q},
                  {.name = layer + "self_attn.k_proj." + suffix, .row = q, .rows = k},
                  {.name = layer + "self_attn.v_proj." + suffix, .row = q + k, .rows = k}};
  };
  nn::BlockFiles files;
  files.attn_norm = one(layer + "input_layernorm.weight");
  files.qkv = qkv("weight");
  files.qkv_bias = qkv("bias");
  files.q_norm = one(layer + "self_attn.q_norm.weight");
  files.k_norm = one(layer + "self_attn.k_norm.weight");
  files.out = one(layer + "self_attn.o_proj.weight", o.hidden);
  files.mlp_norm = one(layer + "post_attention_layernorm.weight");
  files.up = {{.name = layer + "mlp.gate_proj.weight", .row = 0, .rows = f},
              {.name = layer + "mlp.up_proj.weight", .row = f, .rows = f}};
  files.down = one(layer + "mlp.down_proj.weight", o.hidden);
  return files;
}

nn::BlockFiles gpt2_files(const BlockOptions& o, const std::string& layer) {
  nn::BlockFiles files;
  files.attn_norm = one(layer + "ln_1.weight");
  files.attn_norm_bias = one(layer + "ln_1.bias");
  files.qkv = one(layer + "attn.c_attn.weight", 3 * o.hidden, true);
  files.qkv_bias = one(layer + "attn.c_attn.bias");
  files.out = one(layer + "attn.c_proj.weight", o.hidden, true);
  files.out_bias = one(layer + "attn.c_proj.bias");
  files.mlp_norm = one(layer + "ln_2.weight");
  files.mlp_norm_bias = one(layer + "ln_2.bias");
  files.up = one(layer + "mlp.c_fc.weight", o.intermediate, true);
  files.up_bias = one(layer + "mlp.c_fc.bias");
  files.down = one(layer + "mlp.c_proj.weight", o.hidden, true);
  files.down_bias = one(layer + "mlp.c_proj.bias");
  return files;
}

nn::LayerList make_layers(const Case& c) {
  const bool gpt2 = c.theta == 0;
  const std::string root = gpt2 ? "transformer." : "model.";
  BlockOptions o = c.block;
  if (!gpt2) o.rope = std::make_shared<nn::RopeTable>(64, o.head_dim, c.theta, c.scaling);
  const Slices table = one(root + (gpt2 ? "wte.weight" : "embed_tokens.weight"), c.vocab);
  nn::LayerList list;
  list.hidden = o.hidden;
  list.vocab = c.vocab;
  list.layers.push_back(nn::make_embedding({.vocab = c.vocab,
                                            .hidden = o.hidden,
                                            .positions = gpt2 ? 32 : 0,
                                            .table = table,
                                            .position_table = one("transformer.wpe.weight", 32),
                                            .tied = c.tied}));
  for (int i = 0; i < kLayers; ++i) {
    const std::string layer = fmt::format("{}{}.{}.", root, gpt2 ? "h" : "layers", i);
    o.name = fmt::format("blocks.{}", i);
    o.files = gpt2 ? gpt2_files(o, layer) : llama_files(o, layer);
    list.layers.push_back(nn::make_block(o));
  }
  const std::string norm = root + (gpt2 ? "ln_f" : "norm");
  list.loss = nn::make_lm_head({.hidden = o.hidden,
                                .vocab = c.vocab,
                                .norm = o.norm,
                                .norm_eps = o.norm_eps,
                                .weight_name = c.tied ? "embed.weight" : "lm_head.weight",
                                .norm_files = one(norm + ".weight"),
                                .norm_bias_files = one(norm + ".bias"),
                                .weight_files = c.tied ? table : one("lm_head.weight", c.vocab)});
  return list;
}

// A parameter of ours put together from the tensors of a file.
std::vector<float> assemble(const nn::Parameter& p, const Golden& file, const std::string& prefix) {
  std::vector<float> all(size_t(p.count()));
  for (const FileSlice& slice : p.files) {
    const std::vector<float> part = file.floats(prefix + slice.name);
    // Vectors are one row of ours: a slice of them is counted in elements.
    const int64_t cols = p.rows == 1 ? 1 : p.cols, rows = int64_t(part.size()) / cols;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c)
        all[size_t((slice.row + r) * cols + c)] =
            part[size_t(slice.transposed ? c * rows + r : r * cols + c)];
  }
  return all;
}

TokenBatch golden_batch(const Golden& expected) {
  const Tensor shape = expected.view("tokens");
  TokenBatch b{.shape = {shape.rows, shape.cols},
               .tokens = expected.ints("tokens"),
               .targets = expected.ints("targets"),
               .positions = expected.ints("positions"),
               .doc_start = expected.ints("doc_start")};
  for (int32_t& target : b.targets)
    if (target == -100) target = -1;
  return b;
}

struct AdamW {
  double lr, beta1, beta2, eps, weight_decay, clip;
  std::map<std::string, std::vector<double>> m, v;
  int steps = 0;

  explicit AdamW(const Golden& file)
      : lr(std::stod(file.metadata().at("lr"))),
        beta1(std::stod(file.metadata().at("beta1"))),
        beta2(std::stod(file.metadata().at("beta2"))),
        eps(std::stod(file.metadata().at("eps"))),
        weight_decay(std::stod(file.metadata().at("weight_decay"))),
        clip(std::stod(file.metadata().at("clip"))) {}

  // Returns the norm of the gradient before clipping.
  double step(TinyModel& model) {
    double squares = 0;
    for (const auto& [name, p] : model.parameters())
      for (const float g : model.gradient(name)) squares += double(g) * g;
    const double norm = std::sqrt(squares), factor = std::min(1.0, clip / (norm + 1e-6));
    ++steps;
    for (const auto& [name, p] : model.parameters()) {
      const std::vector<float> g = model.gradient(name);
      std::vector<float>& w = model.weights(name);
      m[name].resize(w.size());
      v[name].resize(w.size());
      for (size_t i = 0; i < w.size(); ++i) {
        const double gi = g[i] * factor;
        double& mi = m[name][i] = beta1 * m[name][i] + (1 - beta1) * gi;
        double& vi = v[name][i] = beta2 * v[name][i] + (1 - beta2) * gi * gi;
        const double root = std::sqrt(vi / (1 - std::pow(beta2, steps)));
        const double decayed = w[i] * (1 - (p.decay ? lr * weight_decay : 0));
        w[i] = float(decayed - lr * mi / (1 - std::pow(beta1, steps)) / (root + eps));
      }
    }
    return norm;
  }
};

class ModelParity : public ::testing::TestWithParam<Case> {
 protected:
  void check(const std::string& file) {
    const Case& c = GetParam();
    const Golden weights("model_" + c.name + "/model.safetensors"), expected("model_" + c.name + "/" + file);
    TinyModel model(make_layers(c), golden_batch(expected), DType::f32, DType::f32, 1);
    for (const auto& [name, p] : model.parameters()) model.weights(name) = assemble(p, weights, "");
    const std::vector<float> losses = expected.floats("losses"), norms = expected.floats("grad_norms");
    AdamW optimizer(expected);
    for (size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(model.train(nn::Recompute::selective), losses[i], kModelTolerance * losses[i])
          << "step " << i;
      if (i == 0) compare("grad.", expected, model, [&](const std::string& n) { return model.gradient(n); });
      EXPECT_NEAR(optimizer.step(model), norms[i], kModelTolerance * norms[i]) << "step " << i;
    }
    if (!expected.has("weight." + model.parameters().at("embed.weight").files[0].name)) return;
    compare("weight.", expected, model, [&](const std::string& n) { return model.weights(n); });
  }

  template <class Ours>
  void compare(const std::string& prefix, const Golden& expected, TinyModel& model, const Ours& ours) {
    double worst = 0;
    for (const auto& [name, p] : model.parameters()) {
      const double error = relative_error(ours(name), assemble(p, expected, prefix));
      EXPECT_LT(error, kModelTolerance) << prefix << name;
      worst = std::max(worst, error);
    }
    RecordProperty(prefix + "worst", fmt::format("{:.1e}", worst));
  }
};

TEST_P(ModelParity, LossGradientsAndTenSteps) { check("expected.safetensors"); }

TEST_P(ModelParity, PackedDocuments) {
  if (!GetParam().packed) GTEST_SKIP() << "no packed batch for this model";
  check("expected_packed.safetensors");
}

INSTANTIATE_TEST_SUITE_P(Golden, ModelParity, ::testing::ValuesIn(cases()),
                         [](const auto& model) { return model.param.name; });

}  // namespace
}  // namespace zeno::test
