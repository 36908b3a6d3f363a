// Every instruction set must compute the same function: exact where the order of sums is fixed, else to
// rounding.
#include <bit>
#include <map>
#include <set>

#include "tests/kernels/every_target.h"
#include "tests/kernels/host_tensor.h"
#include "zeno/kernels/activation.h"
#include "zeno/kernels/cross_entropy.h"
#include "zeno/kernels/embedding.h"
#include "zeno/kernels/grad_scan.h"
#include "zeno/kernels/norm.h"
#include "zeno/kernels/optimizer.h"
#include "zeno/kernels/rope.h"

namespace zeno {
namespace {

using Outputs = std::map<std::string, std::vector<double>>;

void run_norm(StreamRef s, HostTensor& x, HostTensor& dy, Outputs& out) {
  HostTensor y(DType::f32, 9, 53), dx = y, weight(DType::f32, 1, 53), dweight = weight, bias = weight,
                                   dbias = weight;
  HostTensor rstd(DType::f32, 9, 1), mean = rstd;
  weight.random(3);
  bias.random(4);
  layernorm_forward(s, {.x = x.view(),
                        .weight = weight.view(),
                        .bias = bias.view(),
                        .y = y.view(),
                        .rstd = rstd.view(),
                        .mean = mean.view()});
  layernorm_backward(s, {.x = x.view(),
                         .weight = weight.view(),
                         .rstd = rstd.view(),
                         .mean = mean.view(),
                         .dy = dy.view(),
                         .dx = dx.view(),
                         .dweight = dweight.view(),
                         .dbias = dbias.view()});
  s.synchronize();
  out["norm y"] = y.values();
  out["norm dx"] = dx.values();
  out["norm dweight"] = dweight.values();
  out["norm dbias"] = dbias.values();
}

void run_activations(StreamRef s, HostTensor& x, HostTensor& dy, Outputs& out) {
  for (Gelu kind : {Gelu::exact, Gelu::tanh}) {
    HostTensor y = x, dx = x;
    gelu_forward(s, kind, x.view(), y.view());
    gelu_backward(s, kind, x.view(), dy.view(), dx.view());
    s.synchronize();
    out[fmt::format("gelu {}", int(kind))] = y.values();
    out[fmt::format("dgelu {}", int(kind))] = dx.values();
  }
  HostTensor gate_up(DType::bf16, 9, 106), y(DType::bf16, 9, 53), dgate_up = gate_up;
  gate_up.random(5);
  swiglu_forward(s, gate_up.view(), y.view());
  swiglu_backward(s, gate_up.view(), y.view(), dgate_up.view());
  s.synchronize();
  out["swiglu"] = y.values();
  out["dswiglu"] = dgate_up.values();
}

void run_tokens(StreamRef s, HostTensor& x, HostTensor& dy, Outputs& out) {
  HostTensor logits = x, losses(DType::f32, 1, 9), ids(DType::i32, 1, 9), dtable(DType::f16, 53, 53);
  HostTensor table(DType::f32, 53, 10), turned(DType::f16, 9, 50);
  ids.random_ids(6, 53);
  turned.random(7);
  rope_table(table.view(), rope_frequencies(10, 10000, {}));
  cross_entropy(s,
                {.logits = logits.view(), .targets = ids.view(), .losses = losses.view(), .grad_scale = 1});
  embedding_backward(s, ids.view(), dy.view(), dtable.view());
  HostTensor weight(DType::f32, 1, 10), rstd(DType::f32, 9, 4), dweight(DType::f32, 1, 10), dturned = turned;
  HostTensor heads = turned;
  weight.random(8, 0.3, 1);
  rope_forward(s, {.x = heads.view(),
                   .y = turned.view(),
                   .positions = ids.view(),
                   .table = table.view(),
                   .q_heads = 3,
                   .k_heads = 1,
                   .head_dim = 10,
                   .q_weight = weight.view(),
                   .k_weight = weight.view(),
                   .rstd = rstd.view()});
  rope_backward(s, {.dx = dturned.view(),
                    .positions = ids.view(),
                    .table = table.view(),
                    .q_heads = 3,
                    .k_heads = 1,
                    .head_dim = 10,
                    .x = heads.view(),
                    .q_weight = weight.view(),
                    .k_weight = weight.view(),
                    .rstd = rstd.view(),
                    .dq_weight = dweight.view()});
  s.synchronize();
  out["dlogits"] = logits.values();
  out["losses"] = losses.values();
  out["dtable"] = dtable.values();
  out["rope"] = turned.values();
  out["drope"] = dturned.values();
  out["q_norm dweight"] = dweight.values();
}

void run_optimizer(StreamRef s, HostTensor& x, HostTensor& dy, Outputs& out) {
  const float factor = 0.5f;
  for (auto kind : {OptimizerHyper::Kind::adamw, OptimizerHyper::Kind::lion}) {
    HostTensor master = x, m(DType::f32, 9, 53), v = m, param(DType::bf16, 9, 53);
    optimizer_update(s, {.hyper = {.kind = kind, .weight_decay = 0.1},
                         .grad = dy.view(),
                         .master = master.view(),
                         .m = m.view(),
                         .v = v.view(),
                         .param = param.view(),
                         .grad_factor = &factor});
    s.synchronize();
    out[fmt::format("optimizer {}", int(kind))] = master.values();
    out[fmt::format("optimizer {} copy", int(kind))] = param.values();
  }
}

TEST(Targets, AllComputeTheSame) {
  HostTensor x(DType::f32, 9, 53), dy(DType::f32, 9, 53);
  x.random(1, 2.0);
  dy.random(2);
  const std::set<std::string> rounded{"swiglu", "dswiglu",          "dtable",           "rope",
                                      "drope",  "optimizer 0 copy", "optimizer 3 copy", "q_norm dweight"};
  Outputs first;
  uint64_t squares = 0;
  on_every_target([&](int64_t) {
    Outputs out;
    GradScan scan;
    run_on(2, [&](StreamRef s) {
      run_norm(s, x, dy, out);
      run_activations(s, x, dy, out);
      run_tokens(s, x, dy, out);
      run_optimizer(s, x, dy, out);
      grad_scan(s, x.view(), &scan);
    });
    const uint64_t bits = std::bit_cast<uint64_t>(scan.squares.value());
    if (first.empty()) {
      first = out;
      squares = bits;
    }
    EXPECT_EQ(bits, squares);
    for (const auto& [name, values] : out) {
      for (size_t i = 0; i < values.size(); ++i) {
        // Sums in another order; bf16 results may then fall on the other neighbour.
        const double neighbour = rounded.contains(name) ? 0x1p-7 * std::abs(first[name][i]) : 0;
        ASSERT_NEAR(values[i], first[name][i], neighbour + 1e-5) << name << " element " << i;
      }
    }
  });
}

}  // namespace
}  // namespace zeno
