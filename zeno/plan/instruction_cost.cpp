#include "zeno/plan/instruction_cost.h"

#include <algorithm>
#include <cmath>

#include "zeno/base/error.h"
#include "zeno/base/math.h"
#include "zeno/base/overload.h"
#include "zeno/zero/step_sums.h"

namespace zeno::plan {
namespace {

using zero::Instruction;
using zero::Moved;
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

CostModel::CostModel(const nn::LayerList& model, const zero::CompiledStep& step, const Machine& machine)
    : step_(step),
      machine_(machine.with_ranks(step.mesh.ranks())),
      rank_(step.mesh.group(0, {comm::Axis::pipe})[size_t(step.units.stage.index)]),
      store_(step.units, step.policy, rank_),
      loss_(model.loss->work(step.shape, step.policy.compute)) {
  for (const auto& layer : model.layers) {
    const auto keeping = [&](nn::Recompute mode) {
      return layer->work(step.shape, step.policy.compute, mode);
    };
    layers_.push_back({keeping(nn::Recompute::none), keeping(nn::Recompute::selective)});
  }
  spans_[{}] = {};
  for (const Instruction& in : step.program.instructions) {
    const auto use = comm_use_of(in);
    if (use && !spans_.contains(use->over)) spans_[use->over] = measure_span(use->over);
  }
}

std::vector<Cost> CostModel::of_all() const {
  std::vector<Cost> costs;
  for (const Instruction& in : step_.program.instructions) {
    costs.push_back(of(in));
    require(std::isfinite(costs.back().seconds), ErrorKind::usage,
            "[plan] machine {}: got no rate for \"{}\" on {} ranks, expected one; measure it (zeno doctor "
            "--measure) or plan for a named machine",
            machine_.name, describe(in, step_.units), step_.mesh.ranks());
  }
  return costs;
}

Cost CostModel::of(const Instruction& in) const {
  using namespace zero;
  const auto disk = [&](double bytes, double rate) {
    return Cost{Resource::disk, bytes * machine_.node_ranks / rate};
  };
  const auto link = [&](Resource way, double bytes) { return Cost{way, bytes / machine_.host_link}; };
  return std::visit(
      Overload{[&](const Start&) { return pass(0); },
               [&](const Read& op) { return disk(moved_bytes(op.payload, op.to), machine_.disk_read); },
               [&](const Fetch& op) { return link(Resource::to_device, moved_bytes(op.payload, op.to)); },
               [&](const Store& op) { return link(Resource::to_host, moved_bytes(op.payload, op.from)); },
               [&](const Write& op) { return disk(moved_bytes(op.payload, op.from), machine_.disk_write); },
               [&](const GradsToHost& op) { return link(Resource::to_host, moved_bytes(op)); },
               [&](const Encode& op) { return pass(encoded_bytes(op)); },
               [&](const Gather& op) { return collective(gather_seconds(op)); },
               [&](const Decode& op) { return pass(decoded_bytes(op)); },
               [&](const ZeroGrads& op) { return pass(grad_bytes(op.grads.group)); },
               [&](const Forward& op) { return part_of(forward_cost(in.unit, op, false), op.part); },
               [&](const Recompute& op) {
                 return part_of(forward_cost(in.unit, op.forward, true), op.forward.part);
               },
               [&](const Loss&) { return loss_cost(); },
               [&](const Backward& op) { return part_of(backward_cost(in.unit, op), op.part); },
               [&](const Exchange& op) { return collective(exchange_seconds(op)); },
               [&](const AddGrads& op) { return pass((1 + changed()) * grad_bytes(op.sum.group)); },
               [&](const Reduce& op) { return collective(reduce_seconds(op)); },
               [&](const GatherSums& op) { return collective(gather_sums_seconds(op)); },
               [&](const ReduceRows& op) { return collective(reduce_rows_seconds(op)); },
               [&](const Send& op) { return collective(hop_seconds(op)); },
               [&](const Receive& op) { return collective(link_of(op.hop).latency); },
               [&](const SumLosses&) { return pass(0); },
               [&](const Scan& op) { return pass(scanned_bytes(op)); },
               [&](const Norm& op) {
                 const Span span = span_of(op.over);
                 return collective(gather_time(double(span.ranks) * sizeof(StepSums), span));
               },
               [&](const Update& op) { return update_cost(op, in.lane); },
               [&](const Finish&) { return pass(0); }},
      in.action);
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

const nn::LayerWork& CostModel::work(int layer, nn::Recompute keep) const {
  return layers_[size_t(layer)][keep == nn::Recompute::selective];
}

Cost CostModel::forward_cost(int layer, const zero::Forward& op, bool again) const {
  const nn::LayerWork& layer_work = work(layer, op.keep);
  const nn::Work& forward = layer_work.forward;
  if (!again) return compute(forward, forward.flops());
  return compute(op.y == zero::kNoRegion ? forward - layer_work.last : forward, 0);
}

Cost CostModel::loss_cost() const {
  if (!step_.program.trains) return compute(loss_.forward, loss_.forward.flops());
  return compute(loss_.forward + loss_.backward, loss_.forward.flops() + model_flops_of_backward(loss_));
}

Cost CostModel::backward_cost(int layer, const zero::Backward& op) const {
  const nn::LayerWork& layer_work = work(layer, op.keep);
  return compute(layer_work.backward, model_flops_of_backward(layer_work));
}

// Layers do not say what each part costs: an even share.
Cost CostModel::part_of(const Cost& pass, const zero::Part& part) {
  return {pass.resource, pass.seconds / part.count, pass.model_flops / part.count};
}

// A core fetches what it changes once, and what it changed goes back beside its work.
double CostModel::changed() const { return machine_.kind == Device::Kind::cpu ? 1 : 2; }

// On a CPU, ranks copy and sum in each other's memory: with the cores that compute.
Cost CostModel::collective(double seconds) const {
  const bool apart = machine_.kind == Device::Kind::cuda && step_.mesh.ranks() > 1;
  return {apart ? Resource::network : Resource::compute, seconds + machine_.launch};
}

// Nodes have ranks that follow each other.
CostModel::Span CostModel::measure_span(comm::Axes axes) const {
  const std::vector<int> ranks = step_.mesh.group(rank_, axes);
  Span span{.ranks = int(ranks.size())};
  for (size_t i = 1; i < ranks.size(); ++i)
    span.nodes += ranks[i] / machine_.node_ranks != ranks[i - 1] / machine_.node_ranks;
  span.near = div_ceil(span.ranks, span.nodes);
  return span;
}

double CostModel::hops(const Span& span) const {
  return double(span.ranks - span.nodes) * machine_.inside.latency +
         double(span.nodes - 1) * machine_.between.latency;
}

// Groups along the same axes are at work at once and share the rails of their nodes. Where each has one rank
// of a node, each has the rail of that rank; a group that has all ranks has all rails, as NCCL builds a ring
// for each of them.
double CostModel::rails_of(const Span& span) const {
  const double groups = double(machine_.node_ranks) / span.near;
  return machine_.rails / groups;
}

// A ring through the group: every byte enters a node once, over the group's rails, and passes each rank.
double CostModel::gather_time(double bytes, const Span& span) const {
  if (span.ranks == 1) return 0;
  const double others = double(span.ranks - 1) / span.ranks, nodes = span.nodes;
  const double across =
      nodes > 1 ? bytes * (nodes - 1) / nodes / (rails_of(span) * machine_.between.rate) : 0;
  const double inside = span.near > 1 ? bytes * others / machine_.inside.rate : 0;
  return std::max(inside, across) + hops(span);
}

// Every rank's slices to their owners, directly: sums have a fixed order (comm/cuda/nccl_mover.cpp).
double CostModel::trade_time(double bytes, const Span& span) const {
  if (span.ranks == 1) return 0;
  const double near = span.near, all = span.ranks;
  const double across =
      span.nodes > 1 ? near * bytes * (all - near) / all / (rails_of(span) * machine_.between.rate) : 0;
  const double inside = near > 1 ? bytes * (near - 1) / all / machine_.inside.rate : 0;
  return std::max(inside, across) + hops(span);
}

// NCCL's and MPI's own sums are a ring, too; what a switch that adds would save on top is not assumed.
double CostModel::sum_time(double bytes, const Span& span) const {
  const bool native = step_.policy.reduction == comm::Reduction::native;
  return native ? gather_time(bytes, span) : trade_time(bytes, span);
}

double CostModel::part_of(const zero::ChunkRange& range, comm::Axes axes) const {
  const zero::Partition& partition = step_.units.groups[size_t(range.group)].partition;
  double elements = 0;
  for (int c = range.first; c < range.first + range.count; ++c)
    elements += double(partition.part(partition.chunks()[size_t(c)], 0, axes).count);
  return elements;
}

double CostModel::gather_seconds(const zero::Gather& op) const {
  const zero::Group& group = step_.units.groups[size_t(op.chunks.group)];
  const int64_t elements = int64_t(part_of(op.chunks, op.sharded - op.over));
  const DType compute = step_.policy.compute;
  const bool in_region = op.chunks.region != zero::kNoRegion;
  return gather_time(
      double(in_region ? group.gathered_bytes(elements, compute) : group.stored_bytes(elements, compute)),
      span_of(op.over));
}

double CostModel::exchange_seconds(const zero::Exchange& op) const {
  return trade_time(double(op.elements) * double(size_of(step_.policy.compute)), span_of(op.over));
}

// Gradients that two stages share are in their own type; they are few.
double CostModel::hop_seconds(const zero::Send& op) const {
  const Link link = link_of(op.hop);
  return double(op.elements) * double(size_of(step_.policy.compute)) / link.rate + link.latency;
}

// Ranks of a stage are in a row: between nodes, each over its share of the rails, unless those of both stages
// are all on one.
Link CostModel::link_of(const zero::Hop& hop) const {
  const auto [first, last] = std::minmax(hop.from, hop.to);
  const int ranks = step_.mesh.ranks() / step_.mesh.size(comm::Axis::pipe);
  const bool near = first * ranks / machine_.node_ranks == ((last + 1) * ranks - 1) / machine_.node_ranks;
  return near ? machine_.inside : Link{rails_of({}) * machine_.between.rate, machine_.between.latency};
}

double CostModel::reduce_rows_seconds(const zero::ReduceRows& op) const {
  const Span span = span_of(op.over);
  const double rows = double(step_.shape.rows() * step_.policy.micro_batches);
  const double cols = double(step_.units.groups[size_t(op.group)].layout.tensors()[0].cols);
  return gather_time(double(span.ranks) * rows * cols * double(size_of(step_.policy.grad)), span);
}

double CostModel::reduce_seconds(const zero::Reduce& op) const {
  const Span span = span_of(op.over);
  double elements = 0;
  for (const auto& [range, accumulate] : op.bucket) elements += part_of(range, op.sharded);
  const bool sums = op.from != zero::kNoRegion;
  if (op.code) {
    // Values are read and cells written, and what arrives is summed into the slice.
    const double cells = double(wire_bytes(*op.code, int64_t(elements)));
    const double values = elements * double(sums ? sizeof(float) : size_of(step_.policy.grad));
    return trade_time(cells, span) + (2 * cells + values + values / span.ranks) / machine_.memory_rate;
  }
  const double sent = elements * double(sums ? sizeof(float) : size_of(step_.policy.wire));
  const double slice = elements / span.ranks * double(size_of(step_.policy.grad));
  // Slices of all ranks are read and their sum is written, on a CPU on their way; a copy in the type of the
  // wire comes before.
  double bytes = machine_.kind == Device::Kind::cuda ? sent + slice : 0;
  if (op.wire != zero::kNoRegion) bytes += sent + elements * double(size_of(step_.policy.grad));
  double seconds = sum_time(sent, span);
  if (!op.scatter) seconds += sum_time(sent, span);  // and the sums to all ranks
  return seconds + bytes / machine_.memory_rate;
}

double CostModel::gather_sums_seconds(const zero::GatherSums& op) const {
  double elements = 0;
  for (const zero::ChunkRange& range : op.bucket) elements += part_of(range, {});
  const double wire = elements * double(size_of(step_.policy.wire));
  const double coded = op.wire != zero::kNoRegion ? wire + elements * double(size_of(step_.policy.grad)) : 0;
  return gather_time(wire, span_of(op.over)) + coded / machine_.memory_rate;
}

// On the host of a GPU by its CPU, which the ranks of the node share.
Cost CostModel::update_cost(const zero::Update& op, zero::Lane lane) const {
  if (lane != zero::Lane::host) return pass(update_bytes(op));
  return {Resource::host_cpu,
          double(step_.units.chunks[size_t(op.chunk)].count) * machine_.node_ranks / machine_.host_updates};
}

// Gradient read, masters and moments changed, parameters written where they are no masters, and read where
// masters are what they leave.
double CostModel::update_bytes(const zero::Update& op) const {
  const int group = op.group;
  const int64_t count = step_.units.chunks[size_t(op.chunk)].count;
  const auto bytes = [&](State state) {
    return store_.exists(state, group) ? double(store_.bytes_of(state, group, count)) : 0.0;
  };
  double sum = bytes(State::grad);
  for (State state : zero::kOptimizerStates) sum += changed() * bytes(state);
  const bool made = op.made != zero::kNoRegion;
  if (store_.split(group)) return sum + changed() * bytes(State::param);
  if (made || step_.policy.compute != step_.policy.states) sum += bytes(State::param);
  return sum;
}

double CostModel::moved_bytes(const zero::Payload& payload, zero::RegionId region) const {
  const auto [kind, group, chunk] = payload;
  switch (kind) {
    case Moved::states:
      return double(store_.block_bytes(chunk));
    case Moved::params: {
      const zero::Group& g = step_.units.groups[size_t(group)];
      const int64_t kept = g.partition.shard(g.params);
      return double(
          store_.bytes_of(State::param, group, chunk < 0 ? kept : step_.units.chunks[size_t(chunk)].count));
    }
    case Moved::activation:
      break;
  }
  return double(step_.program.regions[size_t(region)].bytes);
}

double CostModel::moved_bytes(const zero::GradsToHost& op) const {
  return double(store_.bytes_of(State::grad, op.group, step_.units.chunks[size_t(op.chunk)].count));
}

// What this rank keeps is read, and written as cells.
double CostModel::encoded_bytes(const zero::Encode& op) const {
  const zero::Group& group = step_.units.groups[size_t(op.group)];
  const int64_t kept = group.partition.shard(group.params);
  const DType compute = step_.policy.compute;
  return double(group.stored_bytes(kept, compute)) + double(group.gathered_bytes(kept, compute));
}

double CostModel::decoded_bytes(const zero::Decode& op) const {
  const zero::Group& group = step_.units.groups[size_t(op.group)];
  const double compute = double(size_of(step_.policy.compute));
  return double(group.gathered_bytes(group.padded(), step_.policy.compute)) +
         double(group.padded()) * compute;
}

double CostModel::scanned_bytes(const zero::Scan& op) const {
  return double(step_.units.groups[size_t(op.group)].partition.shard(comm::kDataAxes)) *
         double(size_of(step_.policy.grad));
}

double CostModel::grad_bytes(int group) const {
  return double(step_.units.groups[size_t(group)].padded()) * double(size_of(step_.policy.grad));
}

}  // namespace zeno::plan
