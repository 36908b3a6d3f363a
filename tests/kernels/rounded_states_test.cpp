// Updates of states kept in less than fp32, against the fp32 update followed by rounding one value at a time.
#include <array>
#include <cmath>
#include <vector>

#include "tests/kernels/every_target.h"
#include "tests/kernels/host_tensor.h"
#include "tests/kernels/scalar_cells.h"
#include "zeno/kernels/master_rest.h"
#include "zeno/kernels/optimizer.h"

namespace zeno {
namespace {

using Kind = OptimizerHyper::Kind;

// A state in memory of just its size, so that AddressSanitizer sees a step too far.
struct State {
  State(DType type, int64_t n)
      : dtype(type), count(n), bytes(type == DType::u8 ? moment_bytes(n) : size_t(n) * size_of(type)) {}

  Tensor part(int64_t begin, int64_t n) {
    const size_t at = dtype == DType::u8 ? moment_bytes(begin) : size_t(begin) * size_of(dtype);
    return {bytes.data() + at, dtype, 1, n};
  }
  Tensor view() { return part(0, count); }
  MomentCell* cells() { return reinterpret_cast<MomentCell*>(bytes.data()); }

  void set(StateRole role, const std::vector<float>& values) {
    if (dtype == DType::u8) return encode_moments(values, role, cells());
    if (dtype == DType::i16) return;  // set with the copies
    for (size_t i = 0; i < values.size(); ++i) {
      dtype == DType::bf16 ? void(view().as<BF16>()[i] = BF16(values[i]))
                           : void(view().as<float>()[i] = values[i]);
    }
  }
  std::vector<float> get(StateRole role) {
    std::vector<float> values(static_cast<size_t>(count));
    if (dtype == DType::u8) {
      decode_moments(cells(), role, values);
    } else {
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = dtype == DType::bf16 ? float(view().as<BF16>()[i]) : view().as<float>()[i];
      }
    }
    return values;
  }

  DType dtype;
  int64_t count;
  Bytes bytes;
};

struct Types {
  DType master, m, v;
};
constexpr Types kTypes[] = {{DType::f32, DType::bf16, DType::bf16}, {DType::f32, DType::u8, DType::u8},
                            {DType::bf16, DType::u8, DType::u8},    {DType::f32, DType::u8, DType::f32},
                            {DType::f32, DType::f32, DType::u8},    {DType::bf16, DType::bf16, DType::u8},
                            {DType::bf16, DType::bf16, DType::bf16}};

struct States {
  States(const Types& types, int64_t n, DType grad_type = DType::bf16)
      : grad(grad_type, 1, n),
        param(DType::bf16, 1, n),
        master(types.master, n),
        m(types.m, n),
        v(types.v, n) {
    grad.random(1, 4);
    std::vector<float> p, first, second;
    for (uint64_t i = 0; i < uint64_t(n); ++i) {
      p.push_back(float(random_normal(2, 0, i)));
      first.push_back(float(0.1 * random_normal(3, 0, i)));
      second.push_back(float(0.01 * random_uniform(4, 0, i)));
    }
    master.set(StateRole::master, p);
    m.set(StateRole::m, first);
    v.set(StateRole::v, second);
  }
  OptimizerUpdate op(const OptimizerHyper& hyper, const float* factor, int64_t begin, int64_t n) {
    return {.hyper = hyper,
            .grad = grad.view().columns(begin, n),
            .master = master.part(begin, n),
            .m = m.part(begin, n),
            .v = v.part(begin, n),
            .param = param.view().columns(begin, n),
            .grad_factor = factor,
            .seed = 99,
            .first_index = kFirst + begin};
  }
  // The lower half of the index begins again on the way.
  static constexpr int64_t kFirst = (int64_t(1) << 32) - 640;
  HostTensor grad, param;
  State master, m, v;
};

OptimizerHyper hyper_for(Kind kind, int64_t step = 7) {
  return {.kind = kind,
          .lr = 2e-3,
          .beta1 = 0.9,
          .beta2 = 0.98,
          .weight_decay = 0.05,
          .momentum = 0.8,
          .step = step};
}

template <StateRole kRole>
Bytes rounded(const std::vector<float>& values, const StochasticRounding& rounding, DType dtype) {
  State state(dtype, int64_t(values.size()));
  if (dtype != DType::u8) {
    std::vector<float> result = values;
    for (size_t i = 0; i < values.size() && dtype == DType::bf16; ++i) {
      result[i] = StochasticRounding::round(values[i], rounding.noise(States::kFirst + int64_t(i)), kRole);
    }
    state.set(kRole, result);
    return state.bytes;
  }
  for (size_t at = 0; at < values.size(); at += kMomentCell) {
    std::array<float, kMomentCell> cell{};
    Noise noise{};
    for (size_t i = 0; i < kMomentCell && at + i < values.size(); ++i) {
      cell[i] = values[at + i];
      noise[i] = rounding.noise(States::kFirst + int64_t(at + i));
    }
    state.cells()[at / kMomentCell] = encoded<kRole>(cell, noise);
  }
  return state.bytes;
}

void expect_rounded_update(Kind kind, const Types& types, int64_t n, DType grad, int64_t step) {
  const float factor = 1.0f / 128;
  const OptimizerHyper hyper = hyper_for(kind, step);
  States states(types, n, grad), wide({DType::f32, DType::f32, DType::f32}, n, grad);
  wide.master.set(StateRole::master, states.master.get(StateRole::master));
  wide.m.set(StateRole::m, states.m.get(StateRole::m));
  wide.v.set(StateRole::v, states.v.get(StateRole::v));
  const Bytes v_before = states.v.bytes;
  run_on(2, [&](StreamRef s) {
    optimizer_update(s, states.op(hyper, &factor, 0, n));
    optimizer_update(s, wide.op(hyper, &factor, 0, n));
  });
  const StochasticRounding rounding(99, step);
  EXPECT_EQ(states.master.bytes,
            rounded<StateRole::master>(wide.master.get(StateRole::master), rounding, types.master));
  EXPECT_EQ(states.m.bytes, rounded<StateRole::m>(wide.m.get(StateRole::m), rounding, types.m));
  const bool has_v = kind == Kind::adam || kind == Kind::adamw;
  EXPECT_EQ(states.v.bytes,
            has_v ? rounded<StateRole::v>(wide.v.get(StateRole::v), rounding, types.v) : v_before);
  const std::vector<float> master = states.master.get(StateRole::master);
  for (int64_t i = 0; i < n; ++i)
    ASSERT_EQ(states.param.get(0, i), float(copy_of_master<BF16>(master[size_t(i)]))) << i;
}

TEST(RoundedStates, EveryTargetRuleAndTypeRoundsTheFp32Update) {
  on_every_target([](int64_t) {
    for (Kind kind : {Kind::adamw, Kind::adam, Kind::sgd, Kind::lion}) {
      for (const Types& types : kTypes) {
        for (int64_t n : {5, 64, 1003}) {
          for (DType grad : kFloatTypes) {
            SCOPED_TRACE(fmt::format("{} {} {} {} n {} {}", int(kind), name_of(types.master),
                                     name_of(types.m), name_of(types.v), n, name_of(grad)));
            expect_rounded_update(kind, types, n, grad, 7);
          }
        }
      }
    }
    expect_rounded_update(Kind::adamw, kTypes[1], 1003, DType::bf16, 100000);  // no correction any more
  });
}

// Masters kept as what bf16 parameters leave of them give the bits of whole ones.
void expect_split_update(Kind kind, DType moments, int64_t n, DType grad) {
  States whole({DType::f32, moments, moments}, n, grad), split({DType::i16, moments, moments}, n, grad);
  const auto copies = [&] {
    return std::span(reinterpret_cast<uint16_t*>(split.param.view().data), size_t(n));
  };
  const auto rests = [&] { return std::span(split.master.view().as<int16_t>(), size_t(n)); };
  split_masters(whole.master.bytes.data(), copies(), rests());
  run_on(2, [&](StreamRef s) {
    for (int64_t step = 1; step <= 3; ++step) {
      static constexpr std::array kFactors{0.5f, 0.0f, 0.25f};  // the second is skipped
      const float* factor = &kFactors[size_t(step - 1)];
      const int64_t cut = n / 128 * 64;
      optimizer_update(s, whole.op(hyper_for(kind, step), factor, 0, n));
      optimizer_update(s, split.op(hyper_for(kind, step), factor, 0, cut));
      optimizer_update(s, split.op(hyper_for(kind, step), factor, cut, n - cut));
    }
  });
  Bytes joined(whole.master.bytes.size());
  join_masters(copies(), rests(), joined.data());
  EXPECT_EQ(joined, whole.master.bytes);
  EXPECT_EQ(split.param.bytes(), whole.param.bytes());
  EXPECT_EQ(split.m.bytes, whole.m.bytes);
  EXPECT_EQ(split.v.bytes, whole.v.bytes);
}

// As a GPU makes it, all bits set: neither the copy nor what is left of the master hides it.
TEST(RoundedStates, ANotANumberShowsInSplitMasters) {
  on_every_target([](int64_t) {
    for (DType moments : {DType::f32, DType::u8}) {
      States states({DType::i16, moments, moments}, 64);
      states.param.view().as<BF16>()[7].bits = 0x7fff;
      states.master.view().as<int16_t>()[7] = -1;
      const float factor = 1;
      run_on(1, [&](StreamRef s) { optimizer_update(s, states.op(hyper_for(Kind::adamw), &factor, 0, 64)); });
      for (int64_t i = 0; i < 64; ++i) {
        const BF16 copy = states.param.view().as<BF16>()[i];
        const uint32_t master = joined_master(copy.bits, states.master.view().as<int16_t>()[i]);
        EXPECT_EQ(std::isnan(float(copy)), i == 7);
        EXPECT_EQ(std::isnan(std::bit_cast<float>(master)), i == 7);
      }
    }
  });
}

TEST(RoundedStates, SplitMastersHaveTheBitsOfWholeOnes) {
  on_every_target([](int64_t) {
    for (Kind kind : {Kind::adamw, Kind::adam, Kind::sgd, Kind::lion}) {
      for (DType moments : {DType::f32, DType::bf16, DType::u8}) {
        for (int64_t n : {5, 64, 1003}) {
          for (DType grad : {DType::f32, DType::bf16}) {
            SCOPED_TRACE(fmt::format("{} {} n {} {}", int(kind), name_of(moments), n, name_of(grad)));
            expect_split_update(kind, moments, n, grad);
          }
        }
      }
    }
  });
}

TEST(RoundedStates, CutsBetweenCellsAndThreadsDoNotChangeTheBits) {
  constexpr int64_t n = 50 * 64 + 17;
  const float factor = 0.5f;
  for (const Types& types : kTypes) {
    States whole(types, n), cut(types, n);
    run_on(1, [&](StreamRef s) { optimizer_update(s, whole.op(hyper_for(Kind::adamw), &factor, 0, n)); });
    run_on(2, [&](StreamRef s) {
      for (int64_t begin = 0; begin < n; begin += 7 * 64) {
        optimizer_update(
            s, cut.op(hyper_for(Kind::adamw), &factor, begin, std::min<int64_t>(7 * 64, n - begin)));
      }
    });
    EXPECT_EQ(cut.master.bytes, whole.master.bytes);
    EXPECT_EQ(cut.m.bytes, whole.m.bytes);
    EXPECT_EQ(cut.v.bytes, whole.v.bytes);
    EXPECT_EQ(cut.param.bytes(), whole.param.bytes());
  }
}

// Twenty steps, with and without a checkpoint of fp32 values in the middle.
TEST(RoundedStates, DecodedMomentsGoOnExactly) {
  constexpr int64_t n = 1003;
  const float factor = 0.01f;
  States straight(kTypes[1], n), resumed(kTypes[1], n);
  run_on(1, [&](StreamRef s) {
    for (int64_t step = 1; step <= 20; ++step) {
      for (States* states : {&straight, &resumed}) {
        states->grad.random(uint64_t(step));
        optimizer_update(s, states->op(hyper_for(Kind::adamw, step), &factor, 0, n));
        s.synchronize();
      }
      if (step % 7 == 0) {
        resumed.m.set(StateRole::m, resumed.m.get(StateRole::m));
        resumed.v.set(StateRole::v, resumed.v.get(StateRole::v));
      }
    }
  });
  EXPECT_EQ(resumed.m.bytes, straight.m.bytes);
  EXPECT_EQ(resumed.v.bytes, straight.v.bytes);
  EXPECT_EQ(resumed.master.bytes, straight.master.bytes);
}

// Gradients in a cell that differ by up to 2^60: those far below the largest are lost in m and v, which must
// not make their steps larger than Adam's can be, (1 - beta1) / sqrt((1 - beta2) (1 - beta1² / beta2)), here
// about 7, by more than what rounding of m and v adds.
TEST(RoundedStates, StepsStayBoundedWhereMomentsAreRoundedOff) {
  constexpr int64_t n = 64 * 40, steps = 60;
  States states(kTypes[1], n, DType::f32);
  const std::vector<float> zero(size_t(n), 0.0f);
  states.master.set(StateRole::master, zero);
  states.m.set(StateRole::m, zero);
  states.v.set(StateRole::v, zero);
  const float factor = 1;
  OptimizerHyper hyper{.kind = Kind::adamw, .lr = 1, .beta1 = 0.9, .beta2 = 0.999, .bias_correction = false};
  const double bound = 0.1 / std::sqrt(0.001 * (1 - 0.81 / 0.999));
  double most = 0;
  run_on(1, [&](StreamRef s) {
    std::vector<float> before = zero;
    for (hyper.step = 1; hyper.step <= steps; ++hyper.step) {
      for (int64_t i = 0; i < n; ++i) {
        const double size = std::exp2(-double(random_bits(8, 1, uint64_t(i)) % 60));
        states.grad.set(0, i, size * random_normal(uint64_t(hyper.step), 5, uint64_t(i)));
      }
      optimizer_update(s, states.op(hyper, &factor, 0, n));
      s.synchronize();
      const std::vector<float> after = states.master.get(StateRole::master);
      for (size_t i = 0; i < after.size(); ++i) most = std::max<double>(most, std::abs(after[i] - before[i]));
      before = after;
    }
  });
  EXPECT_GT(most, 0.5);
  EXPECT_LT(most, 1.5 * bound);
}

// The same gradients with fp32 and eight-bit moments: every element ends near where it should, and the mean
// distance is far below that of one element, since rounding is unbiased.
TEST(RoundedStates, EightBitsFollowFp32) {
  constexpr int64_t n = 4096, steps = 300;
  States states(kTypes[1], n, DType::f32), wide({DType::f32, DType::f32, DType::f32}, n, DType::f32);
  const float factor = 1;
  const auto values = [](States& s) { return s.master.get(StateRole::master); };
  const std::vector<float> start = values(states), zero(size_t(n), 0.0f);
  for (States* s : {&states, &wide}) {
    s->m.set(StateRole::m, zero);
    s->v.set(StateRole::v, zero);
  }
  OptimizerHyper hyper{.kind = Kind::adamw, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99};
  run_on(1, [&](StreamRef s) {
    for (hyper.step = 1; hyper.step <= steps; ++hyper.step) {
      for (States* each : {&states, &wide}) {
        each->grad.random(uint64_t(hyper.step), 0.01, 0.005);
        optimizer_update(s, each->op(hyper, &factor, 0, n));
        s.synchronize();
      }
    }
  });
  const std::vector<float> rounded = values(states), exact = values(wide);
  double moved = 0, distance = 0, bias = 0;
  for (size_t i = 0; i < rounded.size(); ++i) {
    moved += std::abs(exact[i] - start[i]) / n;
    distance += std::abs(rounded[i] - exact[i]) / n;
    bias += (rounded[i] - exact[i]) / n;
  }
  EXPECT_LT(distance, 0.06 * moved);
  EXPECT_LT(std::abs(bias), 0.015 * moved);
}

TEST(RoundedStates, AFactorOfZeroLeavesCells) {
  States states(kTypes[1], 1003);
  const States before = states;
  const float factor = 0;
  run_on(2, [&](StreamRef s) { optimizer_update(s, states.op(hyper_for(Kind::adamw), &factor, 0, 1003)); });
  EXPECT_EQ(states.m.bytes, before.m.bytes);
  EXPECT_EQ(states.v.bytes, before.v.bytes);
  EXPECT_EQ(states.master.bytes, before.master.bytes);
}

TEST(RoundedStates, MastersAreNotKeptInCellsNorWithoutTheirCopies) {
  States states(kTypes[1], 64);
  const float factor = 1;
  KernelStream stream(1);
  OptimizerUpdate op = states.op(hyper_for(Kind::adamw), &factor, 0, 64);
  op.master.dtype = DType::u8;
  EXPECT_THROW(optimizer_update(stream.ref(), op), Error);
  States split({DType::i16, DType::f32, DType::f32}, 64);  // the rest of nothing
  op = split.op(hyper_for(Kind::adamw), &factor, 0, 64);
  op.param = Tensor();
  EXPECT_THROW(optimizer_update(stream.ref(), op), Error);
}

}  // namespace
}  // namespace zeno
