#include "zeno/zero/program/pipeline_plan.h"

#include <utility>

namespace zeno::zero {

PipelinePlan::PipelinePlan(const CompileInput& input, const std::vector<ComputeStep>& steps,
                           ProgramBuilder& builder)
    : input_(input),
      stage_(input.units.stage),
      steps_(steps),
      builder_(builder),
      elements_(input.shape.rows() * input.model.hidden) {}

void PipelinePlan::add(Lane lane, int unit, int mb, Action action) {
  if (!input_.policy.overlap) lane = Lane::compute;
  builder_.add({.action = std::move(action), .lane = lane, .unit = unit, .micro_batch = mb});
}

// `boundary` is the last layer of the earlier of the two stages.
RegionId PipelinePlan::receive(int from, int boundary, int mb) {
  const RegionId region =
      builder_.region(Purpose::activations, size_t(elements_) * size_of(input_.policy.compute));
  add(Lane::receive, boundary, mb, Receive{.hop = {from, stage_.index}, .to = region, .elements = elements_});
  return region;
}

void PipelinePlan::send(int to, int boundary, int mb, RegionId region) {
  add(Lane::send, boundary, mb, Send{.hop = {stage_.index, to}, .from = region, .elements = elements_});
  draining_.push_back(region);
}

void PipelinePlan::before(int s, Outputs& outputs, Gradients& gradients) {
  const auto [pass, layer, mb, phase] = steps_[size_t(s)];
  const bool back = pass == Pass::recompute || pass == Pass::backward;
  if (pass == Pass::forward || pass == Pass::loss) {
    if (layer == stage_.first && !stage_.is_first())
      outputs[{layer - 1, mb}] = receive(stage_.index - 1, layer - 1, mb);
  }
  flush();
  if (back && !stage_.is_last() && gradients.count(mb) == 0)
    gradients[mb] = receive(stage_.index + 1, stage_.end - 1, mb);
}

void PipelinePlan::after(int s, const Outputs& outputs, const Gradients& gradients) {
  const auto [pass, layer, mb, phase] = steps_[size_t(s)];
  for (RegionId region : std::exchange(draining_, {})) builder_.hold(region);
  if (pass == Pass::forward && layer == stage_.end - 1)
    send(stage_.index + 1, layer, mb, outputs.at({layer, mb}));
  const bool ends = (pass == Pass::backward || pass == Pass::loss) && layer == stage_.first;
  if (ends && !stage_.is_first() && trains_before(layer) && gradients.count(mb) > 0)
    put_off_.emplace_back(mb, gradients.at(mb));
}

void PipelinePlan::flush() {
  for (const auto& [mb, region] : std::exchange(put_off_, {}))
    send(stage_.index - 1, stage_.first - 1, mb, region);
}

void PipelinePlan::sum_tied() {
  for (int g = 0; g < int(input_.units.groups.size()); ++g) {
    const Group& group = input_.units.groups[size_t(g)];
    if (!group.trainable || group.twin < 0 || !group.here) continue;
    const int64_t elements = group.partition.shard(group.optimizer);
    const Hop there{group.twin, group.stage}, back{group.stage, group.twin};
    if (stage_.index == group.twin) {
      add(Lane::send, group.unit, -1, Send{.hop = there, .group = g, .elements = elements});
      add(Lane::receive, group.unit, -1, Receive{.hop = back, .group = g, .elements = elements});
      continue;
    }
    const RegionId region = builder_.region(Purpose::staging, size_t(elements) * size_of(input_.policy.grad));
    add(Lane::receive, group.unit, -1, Receive{.hop = there, .to = region, .group = g, .elements = elements});
    add(Lane::compute, group.unit, -1, AddGrads{.sum = {g}, .from = region, .owned = true});
    add(Lane::send, group.unit, -1, Send{.hop = back, .group = g, .elements = elements});
  }
}

}  // namespace zeno::zero
