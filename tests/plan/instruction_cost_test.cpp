#include "zeno/plan/instruction_cost.h"

#include <gtest/gtest.h>

#include "tests/support/model_shapes.h"
#include "tests/support/tiny_decoder.h"
#include "zeno/base/error.h"

namespace zeno::plan {
namespace {

// Rates of one: seconds are the counts themselves. What is not asked about is free.
constexpr double kFree = 1e30;
Machine free_machine() {
  Machine m{.name = "free", .kind = Device::Kind::cuda, .nodes = 4, .node_ranks = 8, .rails = 8};
  m.matmul_16bit = m.matmul_fp32 = m.matmul_fp8 = m.attention = m.memory_rate = kFree;
  m.host_updates = m.host_link = m.disk_read = m.disk_write = kFree;
  m.inside.rate = m.between.rate = kFree;
  return m;
}

zero::EngineOptions options(int stage, int ranks = 1) {
  zero::EngineOptions o{.mesh = comm::Mesh::flat(ranks), .shape = {2, 16}, .device = {Device::Kind::cuda, 0}};
  zero::apply_stage(o.policy, stage);
  o.policy.compute = DType::bf16;
  return o;
}

nn::LayerList model(test::TinyShape shape = {}) { return test::tiny_decoder(test::Family::llama, shape); }

// Of all instructions of a kind.
template <class Kind>
double seconds(const nn::LayerList& layers, const zero::EngineOptions& o, const Machine& machine) {
  const zero::CompiledStep step = zero::compile_step(layers, o);
  const CostModel costs(layers, step, machine);
  double sum = 0;
  for (const zero::Instruction& in : step.program.instructions)
    sum += in.is<Kind>() ? costs.of(in).seconds : 0;
  return sum;
}

// Elements that a rank updates, padding included.
double owned(const nn::LayerList& layers, const zero::EngineOptions& o) {
  const zero::CompiledStep step = zero::compile_step(layers, o);
  double sum = 0;
  for (const zero::StateChunk& chunk : step.units.chunks) sum += double(chunk.count);
  return sum;
}

// Four stages of four ranks on nodes of eight: two of three hops stay inside. Whoever sends pays.
TEST(InstructionCost, HopsGoInsideANodeOrBetweenNodes) {
  Machine m = free_machine();
  m.inside = {4e9, 1e-6};
  m.between = {1e9, 1e-3};
  m.rails = 4;  // two ranks share one
  zero::EngineOptions o = options(1);
  o.mesh = comm::mesh_of({.ranks = 16, .ranks_per_host = 8, .pipe = 4});
  const nn::LayerList layers = model({.blocks = 4});
  for (const int rank : o.mesh.group(0, {comm::Axis::pipe})) {
    const zero::CompiledStep step = zero::compile_step(layers, o, rank);
    const CostModel costs(layers, step, m);
    for (const zero::Instruction& in : step.program.instructions) {
      const auto check = [&](const zero::Hop& hop, double elements) {
        const bool inside = hop.from / 2 == hop.to / 2;
        const double rate = inside ? m.inside.rate : m.between.rate / 2;
        const double latency = inside ? m.inside.latency : m.between.latency;
        EXPECT_NEAR(costs.of(in).seconds, elements * 2 / rate + latency, 1e-12);
      };
      if (const auto* send = in.as<zero::Send>()) check(send->hop, double(send->elements));
      if (const auto* receive = in.as<zero::Receive>()) check(receive->hop, 0);
    }
  }
}

TEST(InstructionCost, BytesOfAnUpdate) {
  Machine m = free_machine();
  m.memory_rate = 1;
  const auto bytes = [&](DType grad, DType states, Tier tier) {
    zero::EngineOptions o = options(1, 4);
    o.policy.grad = grad;
    o.policy.states = states;
    o.policy.offload.optimizer = tier;
    return seconds<zero::Update>(model(), o, m) / owned(model(), o);
  };
  EXPECT_DOUBLE_EQ(bytes(DType::f32, DType::f32, Tier::device), 28);
  EXPECT_DOUBLE_EQ(bytes(DType::bf16, DType::f32, Tier::device), 26);
  EXPECT_DOUBLE_EQ(bytes(DType::bf16, DType::bf16, Tier::device), 14);  // masters are the parameters
  EXPECT_DOUBLE_EQ(bytes(DType::bf16, DType::f32, Tier::host), 28);     // whole masters
}

// A core fetches what it changes once; 26 and 28 bytes are a GPU's.
TEST(InstructionCost, BytesOfAnUpdateOnACpu) {
  Machine m = free_machine();
  m.kind = Device::Kind::cpu;
  m.nodes = 1;
  m.memory_rate = 1;
  zero::EngineOptions o = options(0);
  o.device = {};
  const double count = owned(model(), o);
  EXPECT_DOUBLE_EQ(seconds<zero::Update>(model(), o, m) / count, 16);
  EXPECT_DOUBLE_EQ(seconds<zero::Scan>(model(), o, m) / count, 4);
  o.policy.compute = DType::f32;
  EXPECT_DOUBLE_EQ(seconds<zero::Update>(model(), o, m) / count, 16);
}

// However few rows there are, every weight is read and packed in both passes and its gradient written.
TEST(InstructionCost, ProductsOfAFewRows) {
  const nn::LayerList layers = test::shape_of(test::llama(64, 1, 2, 2, 32, 128, 512, false), 1);
  const double weights = 64 * 192 + 64 * 64 + 3 * 64 * 128;
  zero::EngineOptions o = options(0);
  o.shape = {1, 1};
  Machine m = free_machine();
  m.packing = 1;
  EXPECT_NEAR(seconds<zero::Forward>(layers, o, m) / weights, 1, 0.03);
  EXPECT_NEAR(seconds<zero::Backward>(layers, o, m) / weights, 1, 0.06);
  m.packing = 0;
  m.memory_rate = 1;
  const double embedding = 512 * 64;  // cleared
  const auto backward = [&] { return seconds<zero::Backward>(layers, o, m); };
  EXPECT_NEAR(backward(), 2 * weights + 4 * (weights + embedding), 0.1 * 6 * weights);
  const double wide = backward();
  o.policy.grad = DType::bf16;
  EXPECT_DOUBLE_EQ(wide - backward(), 2 * (weights + embedding));
}

TEST(InstructionCost, StatesPassTheLinkOnceEachWay) {
  Machine m = free_machine();
  m.host_link = 1;
  zero::EngineOptions o = options(0);
  o.policy.offload.optimizer = Tier::host;
  const double count = owned(model(), o);
  EXPECT_NEAR(seconds<zero::Fetch>(model(), o, m) / count, 12, 0.2);  // starts are aligned
  EXPECT_NEAR(seconds<zero::Store>(model(), o, m) / count, 12, 0.2);
  o.policy.offload.cpu_share = 1;
  EXPECT_NEAR(seconds<zero::GradsToHost>(model(), o, m) / count, 4, 0.1);
  EXPECT_NEAR(seconds<zero::Fetch>(model(), o, m) / count, 2, 0.1);  // published parameters
}

TEST(InstructionCost, TheDiskIsSharedByTheRanksOfANode) {
  Machine m = free_machine();
  m.disk_read = m.disk_write = 1;
  zero::EngineOptions o = options(2);
  o.policy.offload.optimizer = Tier::disk;
  o.policy.offload.chunk = 1 << 20;
  const double alone = seconds<zero::Read>(model(), o, m);
  EXPECT_GT(alone, 12 * owned(model(), o) * 0.9);
  o.mesh = comm::Mesh::flat(8);
  const double eight = seconds<zero::Read>(model(), o, m);
  EXPECT_GT(eight, alone * 0.9);  // an eighth each, eight at once, and whole pages
}

// 68 bytes for 64 elements of two or four bytes.
TEST(InstructionCost, BlocksOfEightBitsTakeTheirShare) {
  const zero::EngineOptions plain = options(3, 8);
  zero::EngineOptions coded = plain;
  coded.policy.int8_weights = coded.policy.coded_gradients = true;
  Machine m = free_machine();
  m.inside.rate = 1;
  const auto share = [&]<class Kind>(Kind) {
    return seconds<Kind>(model(), coded, m) / seconds<Kind>(model(), plain, m);
  };
  EXPECT_NEAR(share(zero::Gather{}), 68.0 / 128, 1e-9);
  EXPECT_NEAR(share(zero::Reduce{}), 68.0 / 256, 1e-9);
}

// A gather enters a node once over all its links; slices of a sum go from every rank to their owner.
TEST(InstructionCost, Collectives) {
  const auto time = [&]<class Kind>(int ranks, Kind, double inside, double between) {
    Machine m = free_machine();
    if (inside > 0) m.inside.rate = inside;
    if (between > 0) m.between.rate = between;
    return seconds<Kind>(model(), options(3, ranks), m);
  };
  const auto volume = [&](int ranks) {
    const zero::CompiledStep step = zero::compile_step(model(), options(3, ranks));
    const zero::ProgramTraffic traffic = zero::traffic_of(step.program, step.units, step.mesh);
    return std::pair{2.0 * double(traffic.gathered), 4.0 * double(traffic.reduced)};
  };
  for (int ranks : {2, 8, 16, 32}) {
    const auto [gathered, reduced] = volume(ranks);
    const double n = ranks, nodes = std::max(1.0, n / 8), near = std::min(8.0, n);
    EXPECT_NEAR(time(ranks, zero::Gather{}, 1, 0) / gathered, 1, 1e-9);
    EXPECT_NEAR(time(ranks, zero::Reduce{}, 1, 0) / reduced, (near - 1) / (n - 1), 1e-9);
    EXPECT_NEAR(time(ranks, zero::Gather{}, 0, 1) / gathered, (nodes - 1) / nodes * n / (n - 1) / near, 1e-9);
    EXPECT_NEAR(time(ranks, zero::Reduce{}, 0, 1) / reduced, (n - near) / (n - 1), 1e-9);
  }
  EXPECT_EQ(time(1, zero::Gather{}, 1, 1), 0);
  EXPECT_EQ(time(1, zero::Reduce{}, 1, 1), 0);
}

// NCCL's and MPI's own sums: as much between nodes as a gather of what is summed.
TEST(InstructionCost, NativeSumsAreARing) {
  Machine m = free_machine();
  m.between.rate = 1;
  for (const int ranks : {16, 32}) {
    zero::EngineOptions o = options(3, ranks);
    o.policy.reduction = comm::Reduction::native;
    const zero::CompiledStep step = zero::compile_step(model(), o);
    const double reduced = 4.0 * double(zero::traffic_of(step.program, step.units, o.mesh).reduced);
    const double n = ranks, nodes = n / 8;
    EXPECT_NEAR(seconds<zero::Reduce>(model(), o, m) / reduced, (nodes - 1) / nodes * n / (n - 1) / 8, 1e-9);
  }
}

// Two nodes of four ranks, S bytes. Each half of what is gathered enters the other node once, over all of its
// rails, however the ranks are grouped. A sum in two levels sends a quarter of S on each rank's behalf, half
// of it to the other node; without groups each rank sends half of S there.
TEST(InstructionCost, GroupsShareTheRailsOfTheirNodes) {
  const auto time = [&]<class Kind>(const comm::Mesh& mesh, int rails, Kind) {
    Machine m = free_machine();
    m.node_ranks = 4;
    m.rails = rails;
    m.between.rate = 1;
    zero::EngineOptions o = options(3);
    o.mesh = mesh;
    return seconds<Kind>(model(), o, m);
  };
  const comm::Mesh flat = comm::Mesh::flat(8);
  const zero::CompiledStep step = zero::compile_step(model(), options(3, 8));
  const zero::ProgramTraffic traffic = zero::traffic_of(step.program, step.units, flat);
  const double gathered = 2.0 * double(traffic.gathered) * 8 / 7,
               reduced = 4.0 * double(traffic.reduced) * 8 / 7;
  for (const int rails : {1, 2, 4, 8}) {
    for (const int group : {8, 4, 2, 1})  // 1, 1, 2 and 4 groups across the nodes at once
      EXPECT_NEAR(time(flat.in_groups(group), rails, zero::Gather{}) / gathered, 1.0 / 2 / rails, 1e-9)
          << rails << " rails, groups of " << group;
    EXPECT_NEAR(time(flat, rails, zero::Reduce{}) / reduced, 1.0 / 2 * 4 / rails, 1e-9);
    EXPECT_NEAR(time(flat.in_groups(4), rails, zero::Reduce{}) / reduced, 1.0 / 4 / 2 * 4 / rails, 1e-9);
  }
}

// Ranks of a CPU are as many as one likes; the rails of its node stay what they are.
TEST(InstructionCost, RanksOfACpuShareItsRail) {
  Machine m = free_machine();
  m.kind = Device::Kind::cpu;
  m.nodes = 2;
  m.node_ranks = m.rails = 1;
  m.between.rate = 1;
  for (const int on_node : {1, 4}) {  // each sends half of the gradients to the other node
    zero::EngineOptions o = options(3, 2 * on_node);
    o.device = {};
    const double gradients = 4.0 * owned(model(), o) * 2 * on_node;
    EXPECT_NEAR(seconds<zero::Reduce>(model(), o, m) / gradients, on_node / 2.0, 1e-9);
  }
}

TEST(InstructionCost, AnUnknownRateIsNamed) {
  Machine m = free_machine();
  m.between.rate = 0;  // as zeno doctor leaves it
  const auto plan = [&](int ranks) {
    const nn::LayerList layers = model();
    const zero::CompiledStep step = zero::compile_step(layers, options(3, ranks));
    CostModel(layers, step, m).of_all();
  };
  EXPECT_NO_THROW(plan(8));
  EXPECT_THROW(plan(16), Error);
}

TEST(InstructionCost, WhatRecomputeCosts) {
  Machine m = free_machine();
  m.matmul_16bit = 1;
  zero::EngineOptions o = options(0);
  const double forward = seconds<zero::Forward>(model(), o, m),
               backward = seconds<zero::Backward>(model(), o, m);
  EXPECT_DOUBLE_EQ(backward, 2 * forward);
  o.policy.recompute = nn::Recompute::full;
  // All but the last product of each block, whose result is known not to be needed.
  const double again = seconds<zero::Recompute>(model(), o, m);
  EXPECT_LT(again, 0.9 * forward);
  EXPECT_GT(again, 0.6 * forward);
  m.matmul_16bit = kFree;
  m.memory_rate = 1;
  o.policy.recompute = nn::Recompute::none;
  const double plain = seconds<zero::Backward>(model(), o, m);
  o.policy.recompute = nn::Recompute::selective;
  EXPECT_GT(seconds<zero::Backward>(model(), o, m), plain);
}

TEST(InstructionCost, AFrozenBaseNeedsNoGradientsOfIt) {
  const auto lora = std::make_shared<nn::LoraOptions>();
  lora->rank = 1;
  lora->adapts = [](std::string_view) { return true; };
  Machine m = free_machine();
  m.matmul_16bit = 1;
  const zero::EngineOptions o = options(0);
  const nn::LayerList adapted = model({.lora = lora});
  const double base = seconds<zero::Forward>(model(), o, m);
  const double forward = seconds<zero::Forward>(adapted, o, m),
               backward = seconds<zero::Backward>(adapted, o, m);
  EXPECT_NEAR(backward, base + 2 * (forward - base), 1e-6 * base);
}

TEST(InstructionCost, TheHeadStaysOutOfFp8) {
  Machine m = free_machine();
  m.matmul_fp8 = 1;
  zero::EngineOptions o = options(0);
  const nn::LayerList layers = test::shape_of(test::llama(64, 2, 2, 2, 32, 128, 512, false), 16);
  EXPECT_LT(seconds<zero::Forward>(layers, o, m), 1e-9);
  o.policy.fp8 = true;
  const double rows = 32, weights = 2 * (64 * 192 + 64 * 64 + 3 * 64 * 128);
  EXPECT_NEAR(seconds<zero::Forward>(layers, o, m), 2 * rows * weights, 1);
  EXPECT_LT(seconds<zero::Loss>(layers, o, m), 1e-9);
}

}  // namespace
}  // namespace zeno::plan
