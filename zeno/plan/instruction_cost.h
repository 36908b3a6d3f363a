// Seconds of a step's instructions on a machine, each as if it ran alone, and the part of the machine it
// keeps busy: two instructions that need the same part share it. A message costs whoever sends it. Pure
// arithmetic over what the layers do (nn/work.h), what the instructions move, and the machine's rates.
//
// Work and bytes of an instruction add up, nothing hides: on a GPU at its power cap both draw on the same
// watts, and the sum agrees with what was measured where the larger of the two does not (docs/plan.md).
#pragma once

#include <array>
#include <map>
#include <string_view>
#include <vector>

#include "zeno/plan/machine/machine.h"
#include "zeno/zero/engine.h"

namespace zeno::plan {

enum class Resource { compute, network, to_device, to_host, disk, host_cpu };
inline constexpr int kResources = int(Resource::host_cpu) + 1;
// "compute", "network", "host link (to the device)", …
std::string_view name_of(Resource resource);

struct Cost {
  Resource resource = Resource::compute;
  double seconds = 0;
  double model_flops = 0;  // that training needs: nothing that is computed again
};

class CostModel {
 public:
  CostModel(const nn::LayerList& model, const zero::CompiledStep& step, const Machine& machine);

  Cost of(const zero::Instruction& in) const;
  std::vector<Cost> of_all() const;

 private:
  Cost compute(const nn::Work& work, double model_flops) const;
  Cost forward_cost(int layer, const zero::Forward& op, bool again) const;
  Cost loss_cost() const;
  Cost backward_cost(int layer, const zero::Backward& op) const;
  static Cost part_of(const Cost& pass, const zero::Part& part);
  Cost update_cost(const zero::Update& op, zero::Lane lane) const;
  const nn::LayerWork& work(int layer, nn::Recompute keep) const;
  double gather_seconds(const zero::Gather& op) const;
  double reduce_seconds(const zero::Reduce& op) const;
  double gather_sums_seconds(const zero::GatherSums& op) const;
  double exchange_seconds(const zero::Exchange& op) const;
  double hop_seconds(const zero::Send& op) const;
  Link link_of(const zero::Hop& hop) const;  // between two stages
  double reduce_rows_seconds(const zero::ReduceRows& op) const;
  double update_bytes(const zero::Update& op) const;
  // An activation has the bytes of its region.
  double moved_bytes(const zero::Payload& payload, zero::RegionId region) const;
  double moved_bytes(const zero::GradsToHost& op) const;
  double encoded_bytes(const zero::Encode& op) const;
  double decoded_bytes(const zero::Decode& op) const;
  double scanned_bytes(const zero::Scan& op) const;
  double grad_bytes(int group) const;  // of a whole buffer
  Cost collective(double seconds) const;
  Cost pass(double bytes) const;  // through the device's memory
  double changed() const;         // passes of a byte that is read and written
  // A group of ranks on the machine's nodes.
  struct Span {
    int ranks = 1, nodes = 1;
    int near = 1;  // ranks of each node
  };
  Span span_of(comm::Axes axes) const { return spans_.at(axes); }
  Span measure_span(comm::Axes axes) const;
  double gather_time(double bytes, const Span& span) const;
  double trade_time(double bytes, const Span& span) const;
  double sum_time(double bytes, const Span& span) const;
  double hops(const Span& span) const;
  double rails_of(const Span& span) const;
  // Elements of the chunks that a rank has when they are sharded over `axes`.
  double part_of(const zero::ChunkRange& range, comm::Axes axes) const;

  const zero::CompiledStep& step_;
  const Machine machine_;
  const int rank_;  // the first of its stage
  const zero::StateStore store_;
  std::vector<std::array<nn::LayerWork, 2>> layers_;  // by layer and what it keeps: all, or what is costly
  nn::LayerWork loss_;
  std::map<comm::Axes, Span> spans_;
};

}  // namespace zeno::plan
