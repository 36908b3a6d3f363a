#include "zeno/kernels/optimizer.h"

#include <cmath>

#include "tests/cuda/parity.h"

namespace zeno::cuda_tests {
namespace {

using Kind = OptimizerHyper::Kind;
constexpr Kind kKinds[] = {Kind::adamw, Kind::adam, Kind::sgd, Kind::lion};
constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};

struct State {
  Twin grad, master, m, v, param, factor;

  OptimizerUpdate on(Tensor Twin::*side, const OptimizerHyper& hyper, int64_t begin, int64_t count) const {
    const auto part = [&](const Twin& t) { return t ? (t.*side).columns(begin, count) : Tensor(); };
    return {.hyper = hyper,
            .grad = part(grad),
            .master = part(master),
            .m = part(m),
            .v = part(v),
            .param = part(param),
            .grad_factor = (factor.*side).as<float>(),
            .seed = 99,
            .first_index = 1000 + begin};
  }
};

class CudaOptimizer : public Parity {
 protected:
  Twin scalar(float value) {
    const Twin twin = zeros(DType::f32, 1, 1);
    *twin.cpu.as<float>() = value;
    upload(twin);
    return twin;
  }
  // Squares for v, in its dtype.
  Twin positive(DType dtype, int64_t count, uint64_t seed) {
    const Twin twin = normal(dtype, 1, count, seed, 0.01);
    dispatch_float(dtype, [&]<class T>() {
      for (int64_t i = 0; i < count; ++i) twin.cpu.as<T>()[i] = T(std::abs(float(twin.cpu.as<T>()[i])));
    });
    upload(twin);
    return twin;
  }
  State state(int64_t count, DType grad, DType master, DType m, DType v) {
    return {.grad = normal(grad, 1, count, 1, 4),
            .master = master == DType::i16 ? rests(count, 2) : normal(master, 1, count, 2),
            .m = normal(m, 1, count, 3, 0.1),
            .v = positive(v, count, 4),
            .param = master == DType::i16 ? normal(DType::bf16, 1, count, 5) : poison(DType::bf16, 1, count),
            .factor = scalar(1.0f / 128)};
  }
  static OptimizerHyper hyper(Kind kind, int64_t step = 7) {
    return {.kind = kind,
            .lr = 2e-3,
            .beta1 = 0.9,
            .beta2 = 0.98,
            .weight_decay = 0.05,
            .momentum = 0.8,
            .step = step};
  }
  void update_both(const State& s, const OptimizerHyper& h, int64_t begin, int64_t count) {
    optimizer_update(cpu, s.on(&Twin::cpu, h, begin, count));
    optimizer_update(*gpu, s.on(&Twin::gpu, h, begin, count));
  }
  // Bits, not distances: every operation is rounded the same way on both (this CPU has fused multiply-add).
  void expect_same(const State& s) {
    for (const Twin* t : {&s.master, &s.m, &s.v, &s.param}) {
      if (*t) {
        EXPECT_EQ(on_gpu(*t), on_cpu(*t));
      }
    }
  }
};

TEST_F(CudaOptimizer, Fp32StatesHaveTheBitsOfTheCpu) {
  for (Kind kind : kKinds) {
    for (DType grad : kTypes) {
      for (DType param : kTypes) {
        for (int64_t count : {1, 1001, 70000}) {
          State s = state(count, grad, DType::f32, DType::f32, DType::f32);
          s.param = count == 1001 ? Twin{} : poison(param, 1, count);
          if (kind == Kind::sgd && count == 1) s.m = Twin{};
          OptimizerHyper h = hyper(kind);
          if (!s.m) h.momentum = 0;
          for (int64_t step = 1; step <= 3; ++step) {
            h.step = step;
            h.bias_correction = count != 1001;
            update_both(s, h, 0, count);
          }
          SCOPED_TRACE(std::to_string(int(kind)) + " " + std::string(name_of(grad)) + " " +
                       std::to_string(count));
          expect_same(s);
        }
      }
    }
  }
}

TEST_F(CudaOptimizer, RoundedStatesHaveTheBitsOfTheCpu) {
  const DType choices[][3] = {{DType::bf16, DType::bf16, DType::bf16}, {DType::f32, DType::bf16, DType::bf16},
                              {DType::i16, DType::f32, DType::f32},    {DType::i16, DType::bf16, DType::bf16},
                              {DType::f32, DType::bf16, DType::f32},   {DType::bf16, DType::f32, DType::f32}};
  for (Kind kind : kKinds) {
    for (const auto& [master, m, v] : choices) {
      for (int64_t count : {5, 30003}) {
        State s = state(count, DType::bf16, master, m, v);
        if (count == 5 && master == DType::bf16) s.param = Twin{};
        for (int64_t step = 1; step <= 3; ++step) update_both(s, hyper(kind, step), 0, count);
        SCOPED_TRACE(std::to_string(int(kind)) + " " + std::string(name_of(master)) + " " +
                     std::string(name_of(m)) + " " + std::string(name_of(v)));
        expect_same(s);
      }
    }
  }
}

// Cuts at odd elements also take the path of single elements.
TEST_F(CudaOptimizer, CutsDoNotChangeTheBits) {
  constexpr int64_t n = 20000;
  for (DType master : {DType::f32, DType::bf16, DType::i16}) {
    const DType moments = master == DType::i16 ? DType::f32 : master;
    const State whole = state(n, DType::bf16, master, moments, moments),
                cut = state(n, DType::bf16, master, moments, moments);
    optimizer_update(*gpu, whole.on(&Twin::gpu, hyper(Kind::adamw), 0, n));
    int64_t begin = 0;
    for (int64_t end : {64, 65, 4096, 9999, 20000}) {
      optimizer_update(*gpu, cut.on(&Twin::gpu, hyper(Kind::adamw), begin, end - begin));
      begin = end;
    }
    EXPECT_EQ(on_gpu(cut.master), on_gpu(whole.master));
    EXPECT_EQ(on_gpu(cut.m), on_gpu(whole.m));
    EXPECT_EQ(on_gpu(cut.v), on_gpu(whole.v));
    EXPECT_EQ(on_gpu(cut.param), on_gpu(whole.param));
  }
}

TEST_F(CudaOptimizer, AFactorOfZeroLeavesTheStates) {
  for (DType master : {DType::f32, DType::bf16, DType::i16}) {
    const DType moments = master == DType::i16 ? DType::f32 : master;
    State s = state(1003, DType::f32, master, moments, moments);
    s.param = normal(DType::bf16, 1, 1003, 9);
    s.factor = scalar(0);
    s.grad.cpu.as<float>()[3] = std::nanf("");
    upload(s.grad);
    update_both(s, hyper(Kind::adamw), 0, 1003);
    expect_same(s);
    const State before = state(1003, DType::f32, master, moments, moments);
    EXPECT_EQ(on_gpu(s.master), on_gpu(before.master));
    EXPECT_EQ(on_gpu(s.m), on_gpu(before.m));
  }
}

}  // namespace
}  // namespace zeno::cuda_tests
