// Moments in eight bits on the GPU: the bytes of the CPU, whatever the rule, the mix of types and the cut.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tests/cuda/parity.h"
#include "zeno/kernels/moment_cells.h"
#include "zeno/kernels/optimizer.h"

namespace zeno::cuda_tests {
namespace {

using Kind = OptimizerHyper::Kind;
constexpr Kind kKinds[] = {Kind::adamw, Kind::adam, Kind::sgd, Kind::lion};

struct Types {
  DType grad, master, m, v;
};
constexpr Types kTypes[] = {{DType::bf16, DType::f32, DType::u8, DType::u8},
                            {DType::bf16, DType::bf16, DType::u8, DType::u8},
                            {DType::bf16, DType::i16, DType::u8, DType::u8},
                            {DType::f32, DType::f32, DType::u8, DType::f32},
                            {DType::f16, DType::f32, DType::bf16, DType::u8}};

// A state on both devices. Cells are u8 tensors of as many bytes as they take.
struct State {
  Twin memory;
  Tensor part(Tensor Twin::*side, int64_t begin, int64_t count) const {
    const Tensor& t = memory.*side;
    if (t.dtype != DType::u8) return t.columns(begin, count);
    return {t.data + moment_bytes(begin), DType::u8, 1, count};
  }
};

struct States {
  Twin grad, param, factor;
  State master, m, v;

  OptimizerUpdate on(Tensor Twin::*side, const OptimizerHyper& hyper, int64_t begin, int64_t count) const {
    return {.hyper = hyper,
            .grad = (grad.*side).columns(begin, count),
            .master = master.part(side, begin, count),
            .m = m.part(side, begin, count),
            .v = v.part(side, begin, count),
            .param = (param.*side).columns(begin, count),
            .grad_factor = (factor.*side).as<float>(),
            .seed = 99,
            .first_index = (int64_t(1) << 32) - 6400 + begin};
  }
};

class CudaMomentCells : public Parity {
 protected:
  // Sizes of elements over 2^-50 and more, so that many fall below the smallest step of their cell.
  State moment(DType dtype, StateRole role, int64_t count) {
    std::mt19937_64 engine(uint64_t(role) + 5);
    std::normal_distribution<float> value;
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) {
      const float x = value(engine) * std::exp2(-float(engine() % 25));
      values.push_back(role == StateRole::v ? x * x : x);
    }
    if (dtype == DType::u8) {
      const State state{zeros(DType::u8, 1, int64_t(moment_bytes(count)))};
      encode_moments(values, role, reinterpret_cast<MomentCell*>(state.memory.cpu.data));
      upload(state.memory);
      return state;
    }
    const State state{zeros(dtype, 1, count)};
    dispatch_float(dtype, [&]<class T>() {
      for (int64_t i = 0; i < count; ++i) state.memory.cpu.as<T>()[i] = T(values[size_t(i)]);
    });
    upload(state.memory);
    return state;
  }
  States states(const Types& types, int64_t count, float factor = 1.0f / 128) {
    const Twin scalar = zeros(DType::f32, 1, 1);
    *scalar.cpu.as<float>() = factor;
    upload(scalar);
    const bool split = types.master == DType::i16;
    return {.grad = normal(types.grad, 1, count, 1, 4),
            .param = split ? normal(DType::bf16, 1, count, 5) : poison(DType::bf16, 1, count),
            .factor = scalar,
            .master = {split ? rests(count, 2) : normal(types.master, 1, count, 2)},
            .m = moment(types.m, StateRole::m, count),
            .v = moment(types.v, StateRole::v, count)};
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
  std::vector<std::byte> bytes_on_gpu(const Twin& twin) {
    std::vector<std::byte> bytes(twin.gpu.bytes());
    copy_async(*gpu, bytes.data(), twin.gpu.data, bytes.size());
    gpu->synchronize();
    return bytes;
  }
  std::vector<std::byte> bytes_on_cpu(const Twin& twin) {
    cpu.synchronize();
    return {twin.cpu.data, twin.cpu.data + twin.cpu.bytes()};
  }
  void expect_same(const States& s) {
    EXPECT_EQ(bytes_on_gpu(s.master.memory), bytes_on_cpu(s.master.memory)) << "master";
    EXPECT_EQ(bytes_on_gpu(s.m.memory), bytes_on_cpu(s.m.memory)) << "m";
    EXPECT_EQ(bytes_on_gpu(s.v.memory), bytes_on_cpu(s.v.memory)) << "v";
    EXPECT_EQ(bytes_on_gpu(s.param), bytes_on_cpu(s.param)) << "param";
  }
};

TEST_F(CudaMomentCells, HaveTheBytesOfTheCpu) {
  for (Kind kind : kKinds) {
    for (const Types& types : kTypes) {
      for (int64_t count : {5, 64, 30003}) {
        const States s = states(types, count);
        for (int64_t step = 1; step <= 3; ++step) {
          optimizer_update(cpu, s.on(&Twin::cpu, hyper(kind, step), 0, count));
          optimizer_update(*gpu, s.on(&Twin::gpu, hyper(kind, step), 0, count));
        }
        SCOPED_TRACE(std::to_string(int(kind)) + " " + std::string(name_of(types.master)) + " " +
                     std::string(name_of(types.m)) + " " + std::string(name_of(types.v)) + " " +
                     std::to_string(count));
        expect_same(s);
      }
    }
  }
}

// Gradients at an odd address: elements are read one by one.
TEST_F(CudaMomentCells, UnalignedArraysHaveTheBytesToo) {
  constexpr int64_t n = 3001;
  States s = states(kTypes[0], n);
  for (Tensor Twin::*side : {&Twin::cpu, &Twin::gpu}) {
    OptimizerUpdate op = s.on(side, hyper(Kind::adamw), 0, n - 1);
    op.grad = (s.grad.*side).columns(1, n - 1);
    optimizer_update(side == &Twin::cpu ? cpu.ref() : gpu->ref(), op);
  }
  expect_same(s);
}

TEST_F(CudaMomentCells, CutsDoNotChangeTheBytes) {
  constexpr int64_t n = 20000;
  const States whole = states(kTypes[0], n), cut = states(kTypes[0], n);
  optimizer_update(*gpu, whole.on(&Twin::gpu, hyper(Kind::adamw), 0, n));
  int64_t begin = 0;
  for (int64_t end : {64, 128, 4096, 9984, 20000}) {
    optimizer_update(*gpu, cut.on(&Twin::gpu, hyper(Kind::adamw), begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(bytes_on_gpu(cut.master.memory), bytes_on_gpu(whole.master.memory));
  EXPECT_EQ(bytes_on_gpu(cut.m.memory), bytes_on_gpu(whole.m.memory));
  EXPECT_EQ(bytes_on_gpu(cut.v.memory), bytes_on_gpu(whole.v.memory));
  EXPECT_EQ(bytes_on_gpu(cut.param), bytes_on_gpu(whole.param));
}

TEST_F(CudaMomentCells, AFactorOfZeroLeavesThem) {
  const States s = states(kTypes[0], 1003, 0), before = states(kTypes[0], 1003, 0);
  optimizer_update(cpu, s.on(&Twin::cpu, hyper(Kind::adamw), 0, 1003));
  optimizer_update(*gpu, s.on(&Twin::gpu, hyper(Kind::adamw), 0, 1003));
  expect_same(s);
  EXPECT_EQ(bytes_on_gpu(s.m.memory), bytes_on_cpu(before.m.memory));
  EXPECT_EQ(bytes_on_gpu(s.v.memory), bytes_on_cpu(before.v.memory));
}

}  // namespace
}  // namespace zeno::cuda_tests
