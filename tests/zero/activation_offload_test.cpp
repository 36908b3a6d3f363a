// Checkpoints of recomputed segments in host memory: the bits of a run that keeps them on the device, in less
// of its memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/full_tests.h"
#include "tests/support/homes.h"
#include "tests/support/temp_dir.h"
#include "tests/support/train_run.h"
#include "zeno/base/rng.h"
#include "zeno/zero/program/program_check.h"

namespace zeno::zero {
namespace {

using test::Family;
using test::Homes;
using test::kFull;
using test::run_threads;
using test::RunResult;
using test::RunSpec;

constexpr int kBlocks = 6;

RunSpec deep(Family family = Family::llama) {
  RunSpec spec;
  spec.family = family;
  spec.shape.blocks = kBlocks;
  spec.policy.recompute = nn::Recompute::full;
  spec.policy.prefetch = 8000;
  spec.policy.offload.far_host = true;
  return spec;
}

MemoryPlan memory_of(const RunSpec& spec) {
  return plan_memory(test::model_of(spec), test::options_of(spec));
}

template <class Kind>
bool moves_activation(const Instruction& in) {
  return in.is<Kind>() && in.as<Kind>()->payload.kind == Moved::activation;
}

size_t activation_bytes(const RunSpec& spec) {
  return size_t(spec.batch.rows() * spec.shape.hidden) * size_of(spec.policy.compute);
}

// Which blocks are recomputed, and how many belong together.
struct Recomputed {
  int every, blocks;
  nn::Recompute rest;
};

class ActivationMatrix : public testing::TestWithParam<int> {};

TEST_P(ActivationMatrix, SameBits) {
  constexpr Recomputed kSettings[]{{1, -1, nn::Recompute::none},
                                   {2, -1, nn::Recompute::none},
                                   {1, 4, nn::Recompute::selective},
                                   {3, 5, nn::Recompute::none}};
  int index = 0, ran = 0;
  for (const Recomputed& setting : kSettings) {
    for (int stage : {0, 3}) {
      for (DType dtype : {DType::f32, DType::bf16}) {
        for (int micro_batches : {1, 3}) {
          for (Order order : {Order::horizontal, Order::vertical}) {
            if (!kFull && random_bits(7, 1, uint64_t(index++)) % 6 != 0) continue;
            RunSpec spec = deep(stage == 0 ? Family::llama : Family::gpt2);
            spec.world = GetParam();
            apply_stage(spec.policy, stage);
            spec.policy.compute = dtype;
            spec.policy.micro_batches = micro_batches;
            spec.policy.order = order;
            spec.policy.recompute_every = setting.every;
            spec.policy.recompute_blocks = setting.blocks;
            spec.policy.recompute_rest = setting.rest;
            const RunResult reference = run_threads(spec);
            spec.policy.offload.activations = true;
            const RunResult result = run_threads(spec);
            ++ran;
            ASSERT_EQ(result, reference)
                << "stage " << stage << " " << name_of(dtype) << " k " << micro_batches << " every "
                << setting.every << " of " << setting.blocks << " blocks, order " << int(order);
            EXPECT_EQ(result.booked_tiers, result.peak_tiers);
            EXPECT_GT(result.peak_tiers[size_t(Tier::host)], reference.peak_tiers[size_t(Tier::host)]);
          }
        }
      }
    }
  }
  EXPECT_GT(ran, 4);
}
INSTANTIATE_TEST_SUITE_P(Worlds, ActivationMatrix, testing::Values(1, 2));

// Together with everything else that may leave the device.
TEST(ActivationOffload, SameBitsWithStatesAndParametersAway) {
  test::TempDir folder;
  for (int world : {1, 2}) {
    RunSpec base = deep();
    base.world = world;
    base.policy.micro_batches = 2;
    base.policy.compute = DType::bf16;
    apply_stage(base.policy, 3);
    const RunResult reference = run_threads(base);
    for (Tier tier : {Tier::host, Tier::disk}) {
      RunSpec spec = base;
      Homes{tier, tier, true}.set(spec, folder.path());
      spec.policy.offload.activations = true;
      const RunResult result = run_threads(spec);
      EXPECT_EQ(result, reference) << name_of(tier) << " world " << world;
      EXPECT_EQ(result.booked_tiers, result.peak_tiers);
    }
  }
}

// All checkpoints but those of the first two turns of backward are on the host at once; the device is left
// with few of them, however deep the model is.
TEST(ActivationOffload, MovesTheBytes) {
  for (int micro_batches : {1, 4}) {
    RunSpec spec = deep();
    spec.shape.blocks = 24;
    spec.policy.order = Order::vertical;
    spec.policy.micro_batches = micro_batches;
    const size_t one = activation_bytes(spec);
    const size_t before = memory_of(spec).ledger->booked(Tier::device, Purpose::activations);
    spec.policy.offload.activations = true;
    const MemoryPlan away = memory_of(spec);
    const size_t sent = size_t(24 * micro_batches - 2) * one;
    EXPECT_EQ(away.ledger->booked(Tier::host, Purpose::activations), sent);
    // Vertical order has an activation of every micro-batch between layers, and their gradients.
    const size_t device = away.ledger->booked(Tier::device, Purpose::activations);
    EXPECT_LE(device + sent, before + 3 * one) << micro_batches;
    spec.shape.blocks = 48;
    EXPECT_EQ(memory_of(spec).ledger->booked(Tier::device, Purpose::activations), device);
  }
}

// Where the device's memory is the host's, or nothing is recomputed, the program is the same as without.
TEST(ActivationOffload, NothingMovesInVain) {
  const auto moves = [](const RunSpec& spec) {
    const nn::LayerList model = test::model_of(spec);
    const UnitTable units = make_units(model, spec.policy, comm::Mesh::flat(1));
    const Program program = compile({model, units, spec.policy, comm::Mesh::flat(1), spec.batch});
    return std::ranges::count_if(program.instructions, [](const Instruction& in) {
      return moves_activation<Fetch>(in) || moves_activation<Store>(in);
    });
  };
  RunSpec spec = deep();
  spec.policy.offload.activations = true;
  EXPECT_EQ(moves(spec), 2 * (kBlocks - 2));
  spec.policy.recompute_every = 3;  // two segments: both follow at once
  EXPECT_EQ(moves(spec), 0);
  spec.policy.recompute_every = 1;
  for (nn::Recompute mode : {nn::Recompute::none, nn::Recompute::selective}) {
    spec.policy.recompute = mode;
    EXPECT_EQ(moves(spec), 0);
  }
  spec.policy.recompute = nn::Recompute::full;
  spec.policy.offload.far_host = false;
  EXPECT_EQ(moves(spec), 0);
}

class ActivationProgram : public testing::Test {
 protected:
  ActivationProgram() {
    spec_.policy.offload.activations = true;
    spec_.policy.micro_batches = 2;
    program_ = compile({model_, units_, spec_.policy, comm::Mesh::flat(1), spec_.batch});
  }
  void expect_objection(const Program& program, const char* what) const {
    try {
      check_program(program, units_);
      FAIL() << "no objection: " << what;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  }
  template <class Kind>
  static Instruction& first(Program& program) {
    return *std::ranges::find_if(program.instructions, moves_activation<Kind>);
  }

  RunSpec spec_ = deep();
  nn::LayerList model_ = test::model_of(spec_);
  UnitTable units_ = make_units(model_, spec_.policy, comm::Mesh::flat(1));
  Program program_;
};

// A checkpoint comes back while the turn before its own runs: after that turn's predecessor has ended.
TEST_F(ActivationProgram, ComesBackOneTurnAhead) {
  check_program(program_, units_);
  for (size_t i = 0; i < program_.instructions.size(); ++i) {
    const Instruction& fetch = program_.instructions[i];
    if (!moves_activation<Fetch>(fetch)) continue;
    EXPECT_EQ(fetch.lane, Lane::refill);
    std::vector<int> again;  // layers recomputed from here to the first use
    for (size_t n = i; n < program_.instructions.size(); ++n) {
      const Recompute* recompute = program_.instructions[n].as<Recompute>();
      if (recompute == nullptr) continue;
      again.push_back(program_.instructions[n].unit);
      if (recompute->forward.x == fetch.as<Fetch>()->to) break;
    }
    EXPECT_EQ(again, (std::vector<int>{fetch.unit + 2, fetch.unit + 1}));
  }
}

TEST_F(ActivationProgram, FaultsAreFound) {
  Program program = program_;
  first<Fetch>(program).action = Start{};  // it never comes back
  expect_objection(program, "reads memory that nothing has written");
  program = program_;
  first<Store>(program).action = Start{};  // it never left
  expect_objection(program, "reads memory that nothing has written");
  program = program_;
  const Instruction sent = first<Store>(program);
  for (Instruction& in : program.instructions) {  // backward looks where it was before
    if (in.is<Recompute>() && in.unit == sent.unit + 1 && in.micro_batch == sent.micro_batch)
      in.as<Recompute>()->forward.x = sent.as<Store>()->from;
  }
  expect_objection(program, "touches memory that it no longer has");
  for (Lane lane : {Lane::spill, Lane::refill, Lane::compute}) {
    program = program_;
    for (Instruction& in : program.instructions) {
      if (in.lane == lane) in.waits.clear(), in.carried.clear();
    }
    expect_objection(program, "");
  }
}

}  // namespace
}  // namespace zeno::zero
