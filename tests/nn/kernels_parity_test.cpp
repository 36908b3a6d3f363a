// Every kernel against what PyTorch computes (tests/golden/kernels.safetensors), forward and backward, in
// fp32.
#include <gtest/gtest.h>

#include "tests/support/golden.h"
#include "tests/support/kernel_stream.h"
#include "tests/support/memory.h"
#include "zeno/kernels/activation.h"
#include "zeno/kernels/attention.h"
#include "zeno/kernels/cross_entropy.h"
#include "zeno/kernels/norm.h"
#include "zeno/kernels/optimizer.h"
#include "zeno/kernels/rope.h"

namespace zeno::test {
namespace {

constexpr double kTolerance = 1e-5;

class KernelsParity : public ::testing::Test {
 protected:
  static const Golden& golden() {
    static const Golden file("kernels.safetensors");
    return file;
  }
  Tensor in(const std::string& name) const { return golden().view(name); }
  // An output shaped like the golden tensor, or zeros to accumulate into.
  static Memory like(const std::string& name) {
    const Tensor t = golden().view(name);
    return Memory(t.dtype, t.rows, t.cols);
  }
  static Memory zeros_like(const std::string& name) {
    Memory m = like(name);
    m.zero();
    return m;
  }
  static void expect_close(const Memory& ours, const std::string& name) {
    EXPECT_LT(relative_error(to_floats(ours.view()), golden().floats(name)), kTolerance) << name;
  }

  KernelStream stream_{2};
};

TEST_F(KernelsParity, RmsNorm) {
  const Tensor x = in("rmsnorm.x"), weight = in("rmsnorm.weight");
  Memory y = like("rmsnorm.y"), rstd(DType::f32, x.rows, 1), dx = like("rmsnorm.dx");
  Memory dweight = zeros_like("rmsnorm.dweight");
  rmsnorm_forward(stream_.ref(),
                  {.x = x, .weight = weight, .y = y.view(), .rstd = rstd.view(), .eps = 1e-5f});
  rmsnorm_backward(stream_.ref(), {.x = x,
                                   .weight = weight,
                                   .rstd = rstd.view(),
                                   .dy = in("rmsnorm.dy"),
                                   .dx = dx.view(),
                                   .dweight = dweight.view()});
  stream_.sync();
  expect_close(y, "rmsnorm.y");
  expect_close(dx, "rmsnorm.dx");
  expect_close(dweight, "rmsnorm.dweight");
}

TEST_F(KernelsParity, LayerNorm) {
  const Tensor x = in("layernorm.x"), weight = in("layernorm.weight");
  Memory y = like("layernorm.y"), rstd(DType::f32, x.rows, 1), mean(DType::f32, x.rows, 1);
  Memory dx = like("layernorm.dx"), dweight = zeros_like("layernorm.dweight"),
         dbias = zeros_like("layernorm.dbias");
  layernorm_forward(stream_.ref(), {.x = x,
                                    .weight = weight,
                                    .bias = in("layernorm.bias"),
                                    .y = y.view(),
                                    .rstd = rstd.view(),
                                    .mean = mean.view(),
                                    .eps = 1e-5f});
  layernorm_backward(stream_.ref(), {.x = x,
                                     .weight = weight,
                                     .rstd = rstd.view(),
                                     .mean = mean.view(),
                                     .dy = in("layernorm.dy"),
                                     .dx = dx.view(),
                                     .dweight = dweight.view(),
                                     .dbias = dbias.view()});
  stream_.sync();
  expect_close(y, "layernorm.y");
  expect_close(dx, "layernorm.dx");
  expect_close(dweight, "layernorm.dweight");
  expect_close(dbias, "layernorm.dbias");
}

TEST_F(KernelsParity, Gelu) {
  for (const auto& [name, kind] : {std::pair{"gelu_exact", Gelu::exact}, {"gelu_tanh", Gelu::tanh}}) {
    const std::string n = name;
    Memory y = like(n + ".y"), dx = like(n + ".dx");
    gelu_forward(stream_.ref(), kind, in(n + ".x"), y.view());
    gelu_backward(stream_.ref(), kind, in(n + ".x"), in(n + ".dy"), dx.view());
    stream_.sync();
    expect_close(y, n + ".y");
    expect_close(dx, n + ".dx");
  }
}

TEST_F(KernelsParity, Swiglu) {
  Memory y = like("swiglu.y"), dx = like("swiglu.dx");
  swiglu_forward(stream_.ref(), in("swiglu.x"), y.view());
  swiglu_backward(stream_.ref(), in("swiglu.x"), in("swiglu.dy"), dx.view());
  stream_.sync();
  expect_close(y, "swiglu.y");
  expect_close(dx, "swiglu.dx");
}

TEST_F(KernelsParity, Rope) {
  constexpr int64_t kHeadDim = 16, kPositions = 2048;
  const RopeScaling linear{.kind = RopeScaling::Kind::linear, .factor = 4};
  const RopeScaling llama3{.kind = RopeScaling::Kind::llama3,
                           .factor = 8,
                           .low_freq_factor = 1,
                           .high_freq_factor = 4,
                           .original_context = 64};
  const auto check = [&](const std::string& name, double theta, const RopeScaling& scaling) {
    const std::vector<float> frequencies = rope_frequencies(kHeadDim, theta, scaling);
    EXPECT_LT(relative_error(frequencies, golden().floats(name + ".frequencies")), 1e-7) << name;
    Memory table(DType::f32, kPositions, kHeadDim), x = like(name + ".x"), dy = like(name + ".dy");
    rope_table(table.view(), frequencies);
    from_floats(golden().floats(name + ".x"), x.view());
    from_floats(golden().floats(name + ".dy"), dy.view());
    const int64_t heads = x.view().cols / kHeadDim;
    const Tensor positions = in(name + ".positions");
    rope_forward(stream_.ref(), {.x = x.view(),
                                 .y = x.view(),
                                 .positions = positions,
                                 .table = table.view(),
                                 .q_heads = heads,
                                 .head_dim = kHeadDim});
    rope_backward(stream_.ref(), {.dx = dy.view(),
                                  .positions = positions,
                                  .table = table.view(),
                                  .q_heads = heads,
                                  .head_dim = kHeadDim});
    stream_.sync();
    expect_close(x, name + ".y");
    expect_close(dy, name + ".dx");
  };
  check("rope", 10000, {});
  check("rope_theta", 500000, {});
  check("rope_linear", 10000, linear);
  check("rope_llama3", 500000, llama3);
}

TEST_F(KernelsParity, Attention) {
  for (const std::string name : {"attention_mha", "attention_gqa", "attention_packed", "attention_window"}) {
    const auto s = golden().ints(name + ".shape");
    const AttentionShape shape{.batch = s[0],
                               .seq = s[1],
                               .heads = s[2],
                               .kv_heads = s[3],
                               .head_dim = s[4],
                               .scale = 1 / std::sqrt(float(s[4])),
                               .window = s[5]};
    Memory out = like(name + ".out"), lse(DType::f32, shape.batch * shape.heads, shape.seq);
    Memory dqkv = like(name + ".dqkv"),
           workspace(attention_backward_workspace(Device::Kind::cpu, shape, DType::f32));
    attention_forward(stream_.ref(), {.shape = shape,
                                      .qkv = in(name + ".qkv"),
                                      .doc_start = in(name + ".doc_start"),
                                      .out = out.view(),
                                      .lse = lse.view()});
    attention_backward(stream_.ref(), {.shape = shape,
                                       .qkv = in(name + ".qkv"),
                                       .doc_start = in(name + ".doc_start"),
                                       .out = out.view(),
                                       .lse = lse.view(),
                                       .dout = in(name + ".dout"),
                                       .dqkv = dqkv.view(),
                                       .workspace = workspace.bytes()});
    stream_.sync();
    expect_close(out, name + ".out");
    expect_close(dqkv, name + ".dqkv");
    workspace.check_guard();
  }
}

TEST_F(KernelsParity, CrossEntropy) {
  Memory logits = like("cross_entropy.logits"), losses = like("cross_entropy.losses");
  Memory hits = like("cross_entropy.hits");
  from_floats(golden().floats("cross_entropy.logits"), logits.view());
  cross_entropy(stream_.ref(), {.logits = logits.view(),
                                .targets = in("cross_entropy.targets"),
                                .losses = losses.view(),
                                .hits = hits.view(),
                                .grad_scale = golden().floats("cross_entropy.grad_scale")[0]});
  stream_.sync();
  expect_close(losses, "cross_entropy.losses");
  expect_close(logits, "cross_entropy.dlogits");
  const auto expected = golden().ints("cross_entropy.hits");
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(hits.view().as<int32_t>()[i], expected[i]) << i;
}

TEST_F(KernelsParity, OptimizersTenSteps) {
  using Kind = OptimizerHyper::Kind;
  const std::map<std::string, OptimizerHyper> cases{
      {"adamw", {.kind = Kind::adamw, .lr = 1e-2, .beta2 = 0.95, .weight_decay = 0.1}},
      {"adam", {.kind = Kind::adam, .lr = 1e-2, .beta2 = 0.999, .weight_decay = 0.1}},
      {"sgd", {.kind = Kind::sgd, .lr = 1e-2, .weight_decay = 0.1}},
      {"sgd_momentum", {.kind = Kind::sgd, .lr = 1e-2, .weight_decay = 0.1, .momentum = 0.9}},
      {"lion", {.kind = Kind::lion, .lr = 1e-2, .beta2 = 0.99, .weight_decay = 0.1}},
  };
  for (auto [name, hyper] : cases) {
    const Tensor grads = in(name + ".grads");
    Memory master = like(name + ".start"), m = zeros_like(name + ".start"), v = zeros_like(name + ".start");
    from_floats(golden().floats(name + ".start"), master.view());
    const std::vector<float> weights = golden().floats(name + ".weights");
    const bool adam = hyper.kind == Kind::adamw || hyper.kind == Kind::adam;
    const float factor = 1;
    for (int64_t step = 0; step < grads.rows; ++step) {
      hyper.step = step + 1;
      optimizer_update(stream_.ref(), {.hyper = hyper,
                                       .grad = grads.slice(step, 1),
                                       .master = master.view(),
                                       .m = name == "sgd" ? Tensor{} : m.view(),
                                       .v = adam ? v.view() : Tensor{},
                                       .grad_factor = &factor});
      stream_.sync();
      const auto begin = weights.begin() + step * grads.cols;
      EXPECT_LT(relative_error(to_floats(master.view()), {begin, begin + grads.cols}), kTolerance)
          << name << " step " << step;
    }
  }
}

}  // namespace
}  // namespace zeno::test
