// Properties of step programs, checked without running them.
#include "zeno/zero/program/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/support/expect_error.h"
#include "tests/support/tiny_decoder.h"
#include "zeno/zero/program/program_check.h"

namespace zeno::zero {
namespace {

using test::Family;

struct Compiled {
  nn::LayerList model;
  comm::Mesh mesh;
  Policy policy;
  UnitTable units;
  Program program;
};

Compiled compile_tiny(Family family, Policy policy, int world, nn::BatchShape shape = {2, 12},
                      test::TinyShape size = {}) {
  Compiled c{.model = test::tiny_decoder(family, size), .mesh = comm::Mesh::flat(world)};
  c.policy = normalized(std::move(policy), c.mesh);
  c.units = make_units(c.model, c.policy, c.mesh);
  c.program = compile({c.model, c.units, c.policy, c.mesh, shape});
  return c;
}

Policy staged(int stage) {
  Policy policy;
  apply_stage(policy, stage);
  return policy;
}

template <class Kind>
int count(const Program& program) {
  return int(std::ranges::count_if(program.instructions, &Instruction::is<Kind>));
}

int64_t padded_elements(const UnitTable& units) {
  int64_t sum = 0;
  for (const Group& group : units.groups) sum += group.padded();
  return sum;
}

TEST(Program, EveryPolicyPassesTheChecks) {
  int programs = 0;
  for (int stage : {0, 1, 2, 3}) {
    for (int world : {1, 2, 3, 8}) {
      for (Order order : {Order::horizontal, Order::vertical}) {
        for (nn::Recompute recompute : {nn::Recompute::none, nn::Recompute::selective, nn::Recompute::full}) {
          for (int64_t bucket : {int64_t(1), int64_t(3000), int64_t(1) << 40}) {
            for (int variant = 0; variant < 8; ++variant) {
              Policy policy = staged(stage);
              policy.order = order;
              policy.recompute = recompute;
              policy.recompute_every = 1 + variant % 3;
              policy.reduce_bucket = policy.gather_bucket = bucket;
              policy.prefetch = variant % 4 * 5000;
              policy.micro_batches = variant % 2 ? 4 : 1;
              policy.overlap = variant < 6;
              policy.persist_below = variant == 3 ? 100 : 0;
              policy.reuse_distance = variant == 5 ? 20000 : 0;
              policy.reproducible = variant == 7;
              policy.sparse_gradients = variant == 2;
              policy.wire = variant == 4 ? DType::bf16 : DType::f32;
              const Compiled c = compile_tiny(variant % 2 ? Family::gpt2 : Family::llama, policy, world,
                                              {1, 8}, {.blocks = 3});
              ASSERT_NO_THROW(check_program(c.program, c.units))
                  << "stage " << stage << " world " << world << " variant " << variant;
              ++programs;
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(programs, 4 * 4 * 2 * 3 * 3 * 8);
}

// Before lists of millions of steps are made.
TEST(Program, AStepHasABound) {
  for (const int micro_batches : {1'000'000, std::numeric_limits<int>::max()}) {
    for (const bool trains : {true, false}) {
      Policy policy = staged(2);
      policy.micro_batches = micro_batches;
      policy.trains = trains;
      test::expect_error(ErrorKind::usage,
                         {"[plan] a step of one rank has more than 1048576 instructions", "--grad-accum"},
                         [&] { compile_tiny(Family::llama, policy, 2); });
    }
  }
}

TEST(Program, ChecksFindPlantedFaults) {
  Policy policy = staged(3);
  policy.prefetch = 1 << 20;
  const Compiled good = compile_tiny(Family::llama, policy, 2);
  const auto broken = [&](auto&& damage) {
    Program program = good.program;
    damage(program);
    EXPECT_THROW(check_program(program, good.units), Error);
  };
  broken([](Program& p) {  // a reader no longer waits for its gather
    for (Instruction& in : p.instructions) {
      if (in.is<Forward>()) in.waits.clear();
    }
  });
  broken([](Program& p) {  // a unit is used without being gathered
    std::ranges::find_if(p.instructions, &Instruction::is<Gather>)->as<Gather>()->chunks.count = 0;
  });
  broken([](Program& p) {  // two live buffers on the same bytes
    for (Region& region : p.regions) region.offset = 0;
  });
  broken([](Program& p) {  // a group is never updated
    p.instructions.erase(std::ranges::find_if(p.instructions, &Instruction::is<Update>));
  });
  broken([](Program& p) {  // the next step does not wait for an update
    for (Instruction& in : p.instructions) in.carried.clear();
  });
}

// One rank: no collectives at all.
TEST(Program, OneRankDoesNotCommunicate) {
  for (int stage : {0, 1, 2, 3}) {
    const Compiled c = compile_tiny(Family::gpt2, staged(stage), 1);
    EXPECT_EQ(count<Gather>(c.program) + count<Reduce>(c.program), 0);
  }
}

// 2Ψ, 2Ψ, 2Ψ and 3Ψ: sent and received elements per rank, (N-1)/N of each buffer. Where the embedding's
// backward does not read its weights and the head runs forward and backward at once, stage 3 needs one gather
// less for them.
TEST(Program, TrafficIsTheFormula) {
  for (Family family : {Family::gpt2, Family::llama, Family::qwen3}) {
    for (int world : {2, 3, 4}) {
      for (int stage : {0, 1, 2, 3}) {
        for (int micro_batches : {1, 4}) {
          Policy policy = staged(stage);
          policy.order = Order::vertical;
          policy.micro_batches = micro_batches;
          const Compiled c = compile_tiny(family, policy, world);
          const ProgramTraffic traffic = traffic_of(c.program, c.units, c.mesh);
          const int64_t psi = padded_elements(c.units) * (world - 1) / world;
          SCOPED_TRACE(testing::Message()
                       << "stage " << stage << " world " << world << " k " << micro_batches);
          if (stage == 0) {
            EXPECT_EQ(traffic.gathered, 0);
            EXPECT_EQ(traffic.reduced, 2 * psi);
          } else if (stage < 3) {
            EXPECT_EQ(traffic.gathered, psi);
            EXPECT_EQ(traffic.reduced, psi);
          } else {
            int64_t once = 0;  // units needed in one phase only
            for (const Group& group : c.units.groups) {
              const bool edge =
                  group.unit == 0 ? family == Family::llama : group.unit == c.units.loss_layer();
              if (edge) once += group.padded() * (world - 1) / world;
            }
            EXPECT_EQ(traffic.gathered, 2 * psi - once);
            EXPECT_EQ(traffic.reduced, psi);
          }
        }
      }
    }
  }
}

// Horizontal order with sharded state pays for every micro-batch, and that is visible.
TEST(Program, HorizontalOrderPaysPerMicroBatch) {
  Policy policy = staged(3);
  policy.micro_batches = 1;
  const Compiled one = compile_tiny(Family::llama, policy, 2);
  policy.micro_batches = 4;
  const Compiled four = compile_tiny(Family::llama, policy, 2);
  const ProgramTraffic a = traffic_of(one.program, one.units, one.mesh),
                       b = traffic_of(four.program, four.units, four.mesh);
  EXPECT_EQ(b.gathered, 4 * a.gathered);
  EXPECT_EQ(b.reduced, 4 * a.reduced);
}

// Gathered memory: one unit at a time without prefetch, and by the bytes allowed with it.
TEST(Program, PrefetchIsBoundedByBytes) {
  Policy policy = staged(3);
  policy.prefetch = 0;
  const test::TinyShape size{.blocks = 6};
  const Compiled none = compile_tiny(Family::llama, policy, 2, {2, 12}, size);
  const int64_t block = none.units.groups[1].padded();
  size_t largest = 0;
  for (const Group& group : none.units.groups) largest = std::max(largest, size_t(group.padded()) * 4);
  const size_t gathered = none.program.pool_bytes[size_t(Tier::device)][int(Purpose::gathered)];
  EXPECT_EQ(gathered, largest);
  for (int depth : {1, 2, 3}) {
    policy.prefetch = depth * block;
    const Compiled c = compile_tiny(Family::llama, policy, 2, {2, 12}, size);
    const size_t bytes = c.program.pool_bytes[size_t(Tier::device)][int(Purpose::gathered)];
    EXPECT_GE(bytes, size_t(depth + 1) * size_t(block) * 4);
    // Packing may lose the room of a small unit (embedding or head) between two large ones.
    const size_t small = size_t(c.units.groups[0].padded()) * 4;
    EXPECT_LE(bytes, size_t(depth) * size_t(block) * 4 + largest + small);
    policy.max_live = block;  // no room to run ahead
    const Compiled capped = compile_tiny(Family::llama, policy, 2, {2, 12}, size);
    EXPECT_EQ(capped.program.pool_bytes[size_t(Tier::device)][int(Purpose::gathered)], gathered);
    policy.max_live = int64_t(1) << 40;
  }
}

// Gathers of the backward pass run against the order of the layers, ahead of their use.
TEST(Program, GatherOrderFollowsUse) {
  Policy policy = staged(3);
  policy.prefetch = 0;
  const Compiled c = compile_tiny(Family::llama, policy, 2);
  std::vector<std::string> order;
  for (const Instruction& in : c.program.instructions) {
    if (in.is<Gather>()) order.push_back(c.units.unit_names[size_t(in.unit)]);
  }
  const auto& names = c.units.unit_names;
  EXPECT_EQ(order, (std::vector<std::string>{names[0], names[1], names[2], names[3], names[2], names[1]}));
}

TEST(Program, ReuseDistanceKeepsUnitsBetweenForwardAndBackward) {
  Policy policy = staged(3);
  policy.prefetch = 0;
  const Compiled far = compile_tiny(Family::llama, policy, 2);
  policy.reuse_distance = int64_t(1) << 40;
  const Compiled near = compile_tiny(Family::llama, policy, 2);
  EXPECT_EQ(count<Gather>(far.program), 6);
  EXPECT_EQ(count<Gather>(near.program), 4);
  EXPECT_GT(near.program.pool_bytes[size_t(Tier::device)][int(Purpose::gathered)],
            far.program.pool_bytes[size_t(Tier::device)][int(Purpose::gathered)]);
}

TEST(Program, PersistentTensorsAreGatheredOncePerStep) {
  Policy policy = staged(3);
  policy.persist_below = 64;
  policy.micro_batches = 3;
  const Compiled c = compile_tiny(Family::llama, policy, 2);
  std::vector<int> gathers(c.units.groups.size(), 0);
  for (const Instruction& in : c.program.instructions) {
    if (const Gather* op = in.as<Gather>()) ++gathers[size_t(op->chunks.group)];
  }
  bool seen = false;
  for (size_t g = 0; g < gathers.size(); ++g) {
    if (!c.units.groups[g].persistent) continue;
    seen = true;
    EXPECT_EQ(gathers[g], 1);
    for (const FlatTensor& t : c.units.groups[g].layout.tensors()) EXPECT_LE(t.count(), 64);
  }
  EXPECT_TRUE(seen);
}

TEST(Program, BucketsCutAndMergeReductions) {
  Policy policy = staged(2);
  const test::TinyShape size{.blocks = 6};
  policy.reduce_bucket = int64_t(1) << 40;
  const Compiled merged = compile_tiny(Family::llama, policy, 2, {2, 12}, size);
  EXPECT_EQ(count<Reduce>(merged.program), 1);
  policy.reduce_bucket = 1000;
  const Compiled cut = compile_tiny(Family::llama, policy, 2, {2, 12}, size);
  EXPECT_GT(count<Reduce>(cut.program), 20);
  EXPECT_EQ(traffic_of(cut.program, cut.units, cut.mesh).reduced,
            traffic_of(merged.program, merged.units, merged.mesh).reduced);
  EXPECT_LT(cut.program.pool_bytes[size_t(Tier::device)][int(Purpose::buckets)],
            merged.program.pool_bytes[size_t(Tier::device)][int(Purpose::buckets)]);
}

// Full recompute keeps one activation per block; every k blocks keeps fewer.
TEST(Program, RecomputeShrinksActivations) {
  const test::TinyShape size{.blocks = 8};
  const auto activations = [&](nn::Recompute recompute, int every) {
    Policy policy;
    policy.recompute = recompute;
    policy.recompute_every = every;
    return compile_tiny(Family::llama, policy, 1, {2, 32}, size)
        .program.pool_bytes[size_t(Tier::device)][int(Purpose::activations)];
  };
  const size_t none = activations(nn::Recompute::none, 1),
               selective = activations(nn::Recompute::selective, 1);
  const size_t full = activations(nn::Recompute::full, 1);
  EXPECT_LT(selective, none);
  EXPECT_LT(full, selective);
}

TEST(Units, TiedFrozenAndOddParametersFindTheirPlace) {
  const Compiled c = compile_tiny(Family::gpt2, staged(3), 3);
  int64_t sum = 0;
  for (const Group& group : c.units.groups) {
    for (const FlatTensor& t : group.layout.tensors()) sum += t.count();
  }
  EXPECT_EQ(sum, c.units.elements());
  const int tied = c.units.layer_params[size_t(c.units.loss_layer())].back();
  EXPECT_EQ(c.units.params[size_t(tied)].name, "embed.weight");
  EXPECT_EQ(c.units.groups[size_t(c.units.places[size_t(tied)].group)].unit, 0);
}

}  // namespace
}  // namespace zeno::zero
