#include "zeno/kernels/optimizer.h"

#include <array>

#include "tests/kernels/host_tensor.h"
#include "zeno/kernels/master_rest.h"

namespace zeno {
namespace {

using Kind = OptimizerHyper::Kind;

struct State {
  State(int64_t n, DType grad_type, DType param_type)
      : grad(grad_type, 1, n),
        master(DType::f32, 1, n),
        m(DType::f32, 1, n),
        v(DType::f32, 1, n),
        param(param_type, 1, n) {}
  OptimizerUpdate op(const OptimizerHyper& hyper, const float* factor) {
    return {.hyper = hyper,
            .grad = grad.view(),
            .master = master.view(),
            .m = m.view(),
            .v = v.view(),
            .param = param.view(),
            .grad_factor = factor};
  }
  HostTensor grad, master, m, v, param;
};

// Ten steps from p[i] = (37 i mod 101) / 50 - 1 with g[i] = ((53 i + 29 t) mod 97) / 300 - 0.15.
std::vector<double> ten_steps(OptimizerHyper hyper, bool with_m = true) {
  State state(11, DType::f32, DType::f32);
  for (int64_t i = 0; i < 11; ++i) state.master.set(0, i, double(i * 37 % 101) / 50 - 1);
  const float factor = 1;
  run_on(1, [&](StreamRef s) {
    for (int64_t t = 1; t <= 10; ++t) {
      for (int64_t i = 0; i < 11; ++i) state.grad.set(0, i, double((i * 53 + t * 29) % 97) / 300 - 0.15);
      hyper.step = t;
      OptimizerUpdate op = state.op(hyper, &factor);
      if (!with_m) op.m = Tensor();
      optimizer_update(s, op);
      s.synchronize();
    }
  });
  EXPECT_EQ(state.param.bytes(), state.master.bytes());
  return state.master.values();
}

void expect_parity(const std::vector<double>& got, const std::array<float, 11>& expected) {
  for (size_t i = 0; i < 11; ++i) EXPECT_NEAR(got[i], expected[i], 1.5e-7 * std::abs(expected[i])) << i;
}

// Expected values: torch 2.15, float32, foreach=False, the same ten steps.
TEST(Optimizer, AdamWMatchesTorch) {
  expect_parity(
      ten_steps({.kind = Kind::adamw, .lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1}),
      {-0.998677194f, -0.263251245f, 0.469827145f, -0.805193245f, -0.0691658705f, 0.683545589f, -0.608063102f,
       0.148623466f, 0.863383353f, -0.392051905f, 0.333257586f});
}

TEST(Optimizer, AdamMatchesTorch) {
  expect_parity(ten_steps({.kind = Kind::adam, .lr = 3e-3, .weight_decay = 0.01}),
                {-0.998522341f, -0.263320029f, 0.470052361f, -0.80549407f, -0.0692761838f, 0.683860779f,
                 -0.608346105f, 0.148658395f, 0.864301562f, -0.392044753f, 0.333388746f});
}

TEST(Optimizer, SgdMatchesTorch) {
  expect_parity(ten_steps({.kind = Kind::sgd, .lr = 0.05, .weight_decay = 0.01, .momentum = 0.9}),
                {-1.0083257f, -0.269127458f, 0.395551562f, -0.81602335f, -0.103553317f, 0.676087737f,
                 -0.628164828f, 0.169401079f, 0.790254176f, -0.365751535f, 0.297927171f});
  expect_parity(ten_steps({.kind = Kind::sgd, .lr = 0.05}, false),
                {-1.01299977f, -0.264333308f, 0.46816662f, -0.803166568f, -0.0706666708f, 0.678000152f,
                 -0.609499931f, 0.139166653f, 0.87166667f, -0.399666667f, 0.33283332f});
}

struct Reference {
  double p, m, v;
};

// One step in double.
Reference reference_step(const OptimizerHyper& h, double g, Reference s) {
  if (h.kind == Kind::adamw || h.kind == Kind::lion) s.p -= h.lr * h.weight_decay * s.p;
  if (h.kind == Kind::adam || h.kind == Kind::sgd) g += h.weight_decay * s.p;
  if (h.kind == Kind::sgd) {
    s.m = h.momentum * s.m + g;
    s.p -= h.lr * s.m;
  } else if (h.kind == Kind::lion) {
    const double mixed = h.beta1 * s.m + (1 - h.beta1) * g;
    s.p -= h.lr * double((mixed > 0) - (mixed < 0));
    s.m = h.beta2 * s.m + (1 - h.beta2) * g;
  } else {
    s.m = h.beta1 * s.m + (1 - h.beta1) * g;
    s.v = h.beta2 * s.v + (1 - h.beta2) * g * g;
    const double c1 = h.bias_correction ? 1 - std::pow(h.beta1, double(h.step)) : 1;
    const double c2 = h.bias_correction ? 1 - std::pow(h.beta2, double(h.step)) : 1;
    s.p -= h.lr / c1 * s.m / (std::sqrt(s.v) / std::sqrt(c2) + h.eps);
  }
  return s;
}

OptimizerHyper hyper_for(Kind kind, bool correction = true) {
  return {.kind = kind,
          .lr = 2e-3,
          .beta1 = 0.9,
          .beta2 = 0.98,
          .weight_decay = 0.05,
          .momentum = 0.8,
          .bias_correction = correction,
          .step = 7};
}

TEST(Optimizer, EveryRuleAndTypeFollowsTheDoubleReference) {
  for (Kind kind : {Kind::adamw, Kind::adam, Kind::sgd, Kind::lion}) {
    for (DType type : kFloatTypes) {
      for (int64_t n : {1, 17, 1001}) {
        const OptimizerHyper hyper = hyper_for(kind, n != 17);
        State state(n, type, type);
        state.grad.random(1, 64.0);
        state.master.random(2);
        state.m.random(3, 0.1);
        for (int64_t i = 0; i < n; ++i) state.v.set(0, i, 0.001 + 0.01 * random_uniform(4, 0, uint64_t(i)));
        const State before = state;
        const float factor = 1.0f / 128;
        run_on(2, [&](StreamRef s) { optimizer_update(s, state.op(hyper, &factor)); });
        for (int64_t i = 0; i < n; ++i) {
          const Reference r =
              reference_step(hyper, before.grad.get(0, i) * factor,
                             {before.master.get(0, i), before.m.get(0, i), before.v.get(0, i)});
          ASSERT_NEAR(state.master.get(0, i), r.p, 4e-7 * std::max(1.0, std::abs(r.p)));
          ASSERT_NEAR(state.m.get(0, i), r.m, 3e-7);
          ASSERT_NEAR(state.v.get(0, i), r.v, 3e-7 * (r.v + 1e-3));
          const float master = float(state.master.get(0, i));
          ASSERT_EQ(state.param.get(0, i), dispatch_float(type, [&]<class T>() {
                      return double(float(copy_of_master<T>(master)));
                    }));
        }
      }
    }
  }
}

TEST(Optimizer, ThreadsAndCutsDoNotChangeTheBits) {
  constexpr int64_t n = 50001;
  State start(n, DType::bf16, DType::bf16);
  start.grad.random(1);
  start.master.random(2);
  const float factor = 0.5f;
  for (Kind kind : {Kind::adamw, Kind::lion}) {
    State whole = start;
    run_on(1, [&](StreamRef s) { optimizer_update(s, whole.op(hyper_for(kind), &factor)); });
    for (int threads : {2, 3}) {
      State cut = start;
      run_on(threads, [&](StreamRef s) {
        for (int64_t begin = 0; begin < n; begin += 12347) {
          OptimizerUpdate op = cut.op(hyper_for(kind), &factor);
          for (Tensor* t : {&op.grad, &op.master, &op.m, &op.v, &op.param}) {
            *t = t->columns(begin, std::min<int64_t>(12347, n - begin));
          }
          optimizer_update(s, op);
        }
      });
      EXPECT_EQ(cut.master.bytes(), whole.master.bytes());
      EXPECT_EQ(cut.m.bytes(), whole.m.bytes());
      EXPECT_EQ(cut.v.bytes(), whole.v.bytes());
      EXPECT_EQ(cut.param.bytes(), whole.param.bytes());
    }
  }
}

TEST(Optimizer, FactorIsReadWhenTheKernelRunsAndZeroLeavesTheStates) {
  State state(100, DType::f32, DType::bf16);
  state.grad.random(1);
  state.master.random(2);
  state.grad.set(0, 3, std::nan(""));
  const State before = state;
  float factor = 1;
  run_on(2, [&](StreamRef s) {
    s.launch([&](Workers&) { factor = 0; });
    optimizer_update(s, state.op(hyper_for(Kind::adamw), &factor));
  });
  EXPECT_EQ(state.master.bytes(), before.master.bytes());
  EXPECT_EQ(state.m.bytes(), before.m.bytes());
  EXPECT_EQ(state.v.bytes(), before.v.bytes());
  HostTensor copy(DType::bf16, 1, 100);  // written all the same: it may be in a new place
  for (int64_t i = 0; i < 100; ++i) copy.set(0, i, before.master.get(0, i));
  EXPECT_EQ(state.param.bytes(), copy.bytes());
}

TEST(Optimizer, RefusesStatesOfAnotherSize) {
  State state(10, DType::f32, DType::f32);
  const float factor = 1;
  KernelStream stream(1);
  OptimizerUpdate op = state.op(hyper_for(Kind::adamw), &factor);
  op.v = Tensor();
  EXPECT_THROW(optimizer_update(stream.ref(), op), Error);
}

}  // namespace
}  // namespace zeno
