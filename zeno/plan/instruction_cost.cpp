#include "zeno/plan/instruction_cost.h"

#include <algorithm>
#include <cmath>

#include "zeno/base/error.h"
#include "zeno/zero/step_sums.h"

namespace zeno::plan {
namespace {

using zero::Instruction;
using zero::Lane;
using zero::Moved;
using zero::Op;
using zero::State;

// What training would need of a pass, had backward kept the scores of attention.
double model_flops_of_backward(const nn::LayerWork& work) {
  return work.backward.matmul_flops + work.backward.fp8_flops + 2 * work.forward.attention_flops;
}

}  // namespace

std::string_view name_of(Resource resource) {
  constexpr std::array<std::string_view, kResources> kNames{
      "compute", "network", "host link (to the device)", "host link (to the host)", "disk", "host CPU"};
  return kNames[size_t(resource)];
}

CostModel::CostModel(const nn::LayerList& model, const zero::CompiledStep& step, const Machine& machine,
                     int world)
    : step_(step),
      machine_(machine.with_ranks(world)),
      world_(world),
      store_(step.units, step.policy, 0),
      loss_(model.loss->work(step.shape, step.policy.compute)) {
  for (const auto& layer : model.layers) {
    const auto keeping = [&](nn::Recompute mode) {
      return layer->work(step.shape, step.policy.compute, mode);
    };
    layers_.push_back({keeping(nn::Recompute::none), keeping(nn::Recompute::selective)});
  }
}

std::vector<Cost> CostModel::of_all() const {
  std::vector<Cost> costs;
  for (const Instruction& in : step_.program.instructions) {
    costs.push_back(of(in));
    require(std::isfinite(costs.back().seconds), ErrorKind::usage,
            "[plan] machine {}: got no rate for \"{}\" on {} ranks, expected one; measure it (zeno doctor "
            "--measure) or plan for a named machine",
            machine_.name, describe(in, step_.units), world_);
  }
  return costs;
}

Cost CostModel::of(const Instruction& in) const {
  const double grad = double(size_of(step_.policy.grad)), compute = double(size_of(step_.policy.compute));
  const auto target = [&]() -> const zero::Group& { return step_.units.groups[size_t(in.target.group)]; };
  switch (in.op) {
    case Op::forward:
    case Op::recompute:
    case Op::loss:
    case Op::backward:
      return layer_cost(in);
    case Op::gather:
      return collective(gather_seconds(in));
    case Op::reduce:
      return collective(reduce_seconds(in));
    case Op::reduce_rows: {
      const double rows = double(step_.shape.rows() * step_.policy.micro_batches);
      return collective(
          gather_time(double(world_) * rows * double(target().layout.tensors()[0].cols) * grad));
    }
    case Op::norm:
      return collective(gather_time(double(world_) * sizeof(zero::StepSums)));
    case Op::read:
    case Op::write: {
      const double rate = in.op == Op::read ? machine_.disk_read : machine_.disk_write;
      return {Resource::disk, moved_bytes(in) * machine_.node_ranks / rate};
    }
    case Op::fetch:
      return {Resource::to_device, moved_bytes(in) / machine_.host_link};
    case Op::store:
    case Op::send:
      return {Resource::to_host, moved_bytes(in) / machine_.host_link};
    case Op::update:
      if (in.lane != Lane::host) return pass(update_bytes(in));
      return {Resource::host_cpu, double(step_.units.chunks[size_t(in.chunk)].count) * machine_.node_ranks /
                                      machine_.host_updates};
    case Op::decode:
      return pass(double(target().stored_bytes(target().padded(), step_.policy.compute)) +
                  double(target().padded()) * compute);
    case Op::zero_grads:
      return pass(double(target().padded()) * grad);
    case Op::add_grads:
      return pass((1 + changed()) * double(target().padded()) * grad);
    case Op::scan:
      return pass(double(target().partition.shard()) * grad);
    case Op::start:
    case Op::sum_losses:
    case Op::finish:
      return pass(0);
  }
  fail(ErrorKind::internal, "[plan] an instruction without a cost: {}", name_of(in.op));
}

Cost CostModel::compute(const nn::Work& work, double model_flops) const {
  const bool fp32_gpu = machine_.kind == Device::Kind::cuda && step_.policy.compute == DType::f32;
  const double attention =
      fp32_gpu ? machine_.attention * machine_.matmul_fp32 / machine_.matmul_16bit : machine_.attention;
  const double bytes = work.bytes + work.gradients * double(size_of(step_.policy.grad));
  double seconds = machine_.launch + work.matmul_flops / machine_.matmul(step_.policy.compute, false) +
                   work.attention_flops / attention + bytes / machine_.memory_rate;
  if (machine_.packing > 0) seconds += work.packed / machine_.packing;
  if (work.fp8_flops > 0) seconds += work.fp8_flops / machine_.matmul_fp8;
  return {Resource::compute, seconds, model_flops};
}

Cost CostModel::pass(double bytes) const { return compute({.bytes = bytes}, 0); }

Cost CostModel::layer_cost(const Instruction& in) const {
  if (in.op == Op::loss) {
    if (!step_.program.trains) return compute(loss_.forward, loss_.forward.flops());
    return compute(loss_.forward + loss_.backward, loss_.forward.flops() + model_flops_of_backward(loss_));
  }
  const nn::LayerWork& work = layers_[size_t(in.layer)][in.keep == nn::Recompute::selective];
  if (in.op == Op::forward) return compute(work.forward, work.forward.flops());
  if (in.op == Op::backward) return compute(work.backward, model_flops_of_backward(work));
  return compute(in.y == zero::kNoRegion ? work.forward - work.last : work.forward, 0);
}

// A core fetches what it changes once, and what it changed goes back beside its work.
double CostModel::changed() const { return machine_.kind == Device::Kind::cpu ? 1 : 2; }

// On a CPU, ranks copy and sum in each other's memory: with the cores that compute.
Cost CostModel::collective(double seconds) const {
  const bool apart = machine_.kind == Device::Kind::cuda && world_ > 1;
  return {apart ? Resource::network : Resource::compute, seconds + machine_.launch};
}

double CostModel::hops() const {
  return double(world_ - machine_.nodes) * machine_.inside.latency +
         double(machine_.nodes - 1) * machine_.between.latency;
}

// A ring through all ranks: every byte enters a node once, over all links of its ranks, and passes each rank.
double CostModel::gather_time(double bytes) const {
  if (world_ == 1) return 0;
  const double others = double(world_ - 1) / world_, nodes = machine_.nodes;
  const double across =
      nodes > 1 ? bytes * (nodes - 1) / nodes / (machine_.node_ranks * machine_.between.rate) : 0;
  const double inside = machine_.node_ranks > 1 ? bytes * others / machine_.inside.rate : 0;
  return std::max(inside, across) + hops();
}

// Every rank's slices to their owners, directly: sums have a fixed order (comm/cuda/nccl_mover.cpp).
double CostModel::trade_time(double bytes) const {
  if (world_ == 1) return 0;
  const double near = machine_.node_ranks, all = world_;
  const double across = machine_.nodes > 1 ? bytes * (all - near) / all / machine_.between.rate : 0;
  const double inside = near > 1 ? bytes * (near - 1) / all / machine_.inside.rate : 0;
  return std::max(inside, across) + hops();
}

double CostModel::gather_seconds(const Instruction& in) const {
  double bytes = 0;
  for (const zero::ChunkRange& range : in.chunks) {
    const zero::Group& group = step_.units.groups[size_t(range.group)];
    for (int c = range.first; c < range.first + range.count; ++c)
      bytes += double(
          group.stored_bytes(group.partition.chunks()[size_t(c)].piece * world_, step_.policy.compute));
  }
  return gather_time(bytes);
}

double CostModel::reduce_seconds(const Instruction& in) const {
  double elements = 0;
  for (const zero::ChunkRange& range : in.chunks) {
    const auto& chunks = step_.units.groups[size_t(range.group)].partition.chunks();
    for (int c = range.first; c < range.first + range.count; ++c)
      elements += double(chunks[size_t(c)].piece) * world_;
  }
  const double wire = elements * double(size_of(step_.policy.wire));
  const double slice = elements / world_ * double(size_of(step_.policy.grad));
  // Slices of all ranks are read and their sum is written, on a CPU on their way; a copy in the type of the
  // wire comes before.
  double bytes = machine_.kind == Device::Kind::cuda ? wire + slice : 0;
  if (in.wire != zero::kNoRegion) bytes += wire + elements * double(size_of(step_.policy.grad));
  double seconds = trade_time(wire);
  if (!step_.program.scatter) seconds += trade_time(wire);  // and the sums to everybody
  return seconds + bytes / machine_.memory_rate;
}

// Gradient read, masters and moments changed, parameters written where they are no masters, and read where
// masters are what they leave.
double CostModel::update_bytes(const Instruction& in) const {
  const int group = in.target.group;
  const int64_t count = step_.units.chunks[size_t(in.chunk)].count;
  const auto bytes = [&](State state) {
    return store_.exists(state, group) ? double(store_.bytes_of(state, group, count)) : 0.0;
  };
  double sum = bytes(State::grad);
  for (State state : zero::kOptimizerStates) sum += changed() * bytes(state);
  const bool made = in.made != zero::kNoRegion;
  if (store_.split(group)) return sum + changed() * bytes(State::param);
  if (made || step_.policy.compute != step_.policy.states) sum += bytes(State::param);
  return sum;
}

double CostModel::moved_bytes(const Instruction& in) const {
  const int group = in.target.group;
  if (in.op == Op::send)
    return double(store_.bytes_of(State::grad, group, step_.units.chunks[size_t(in.chunk)].count));
  switch (in.moved) {
    case Moved::states:
      return double(store_.block_bytes(in.chunk));
    case Moved::params: {
      const zero::Group& g = step_.units.groups[size_t(group)];
      const int64_t kept = store_.whole(State::param, group) ? g.padded() : g.partition.shard();
      return double(store_.bytes_of(State::param, group,
                                    in.chunk < 0 ? kept : step_.units.chunks[size_t(in.chunk)].count));
    }
    case Moved::activation:
      break;
  }
  const zero::RegionId region = in.op == Op::fetch ? in.target.region : in.source;
  return double(step_.program.regions[size_t(region)].bytes);
}

}  // namespace zeno::plan
