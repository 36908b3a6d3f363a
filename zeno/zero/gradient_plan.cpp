#include "zeno/zero/gradient_plan.h"

#include <algorithm>

#include "zeno/base/error.h"

namespace zeno::zero {

GradientPlan::GradientPlan(const CompileInput& input, const std::vector<ComputeStep>& steps,
                           ProgramBuilder& builder)
    : input_(input),
      steps_(steps),
      builder_(builder),
      completed_(input.units.groups.size(), 0),
      storage_cleared_(input.units.groups.size(), false) {
  for (int s = 0; s < int(steps.size()); ++s) {
    for (int group : grad_groups(steps[s])) last_touch_[window_of(group, steps[s])] = s;
  }
}

std::vector<int> GradientPlan::grad_groups(const ComputeStep& step) const {
  std::vector<int> groups;
  if (step.op != Op::loss && step.op != Op::backward) return groups;
  for (int group : input_.units.layer_groups[step.layer]) {
    if (input_.units.groups[group].trainable) groups.push_back(group);
  }
  return groups;
}

// Gradients live in the group's own storage when every rank keeps them whole; otherwise in a passing buffer.
bool GradientPlan::in_region(const Group& group) const {
  return input_.policy.reproducible || (input_.policy.grads == Placement::sharded && !group.sparse);
}

GradientPlan::Window GradientPlan::window_of(int group, const ComputeStep& step) const {
  if (input_.policy.reproducible) return {group, step.layer};
  const bool per_micro_batch =
      in_region(input_.units.groups[group]) && input_.policy.order == Order::horizontal;
  return {group, per_micro_batch ? step.micro_batch : 0};
}

void GradientPlan::clear(Binding target) {
  Instruction in{.op = Op::zero_grads, .layer = input_.units.groups[target.group].unit};
  in.target = target;
  builder_.add(std::move(in));
}

RegionId GradientPlan::cleared_region(int group) {
  const size_t bytes = size_t(input_.units.groups[group].padded()) * size_of(input_.policy.grad);
  const RegionId region = builder_.region(Purpose::buckets, bytes);
  clear({group, region});
  return region;
}

// Is this the first step to touch its groups' buffers, and does its layer write all there is of them? Then
// storage need not be cleared: padding between tensors is zero from the start and nobody writes it. Passing
// buffers are cleared for its sake, and written all the same: on a GPU, writing and adding may differ in
// bits.
bool GradientPlan::written_whole(const ComputeStep& step) const {
  const UnitTable& units = input_.units;
  const bool loss = step.op == Op::loss;
  if (!(loss ? input_.model.loss->writes_gradients() : input_.model.layers[step.layer]->writes_gradients()))
    return false;
  const std::vector<int>& params = units.layer_params[step.layer];
  for (int group : grad_groups(step)) {
    const bool touched = in_region(units.groups[group]) ? buffer_.count(window_of(group, step)) > 0
                                                        : bool(storage_cleared_[group]);
    if (touched) return false;
    for (const FlatTensor& tensor : units.groups[group].layout.tensors()) {
      if (std::find(params.begin(), params.end(), tensor.id) == params.end()) return false;
    }
  }
  return true;
}

std::vector<Binding> GradientPlan::bind(int s) {
  std::vector<Binding> bindings;
  const bool fresh = written_whole(steps_[s]);
  for (int group : grad_groups(steps_[s])) {
    const Window window = window_of(group, steps_[s]);
    if (!in_region(input_.units.groups[group])) {
      if (!storage_cleared_[group] && !fresh) clear({group, kNoRegion});
      storage_cleared_[group] = true;
      bindings.push_back({group, kNoRegion, fresh});
      continue;
    }
    const auto open = buffer_.find(window);
    const RegionId region = open != buffer_.end() ? open->second : cleared_region(group);
    buffer_[window] = region;
    bindings.push_back({group, region, fresh});
  }
  return bindings;
}

void GradientPlan::after(int s) {
  for (int group : grad_groups(steps_[s])) {
    const Window window = window_of(group, steps_[s]);
    if (input_.policy.reproducible) add_leaf(window);
    if (last_touch_.at(window) != s) continue;
    const auto open = buffer_.find(window);
    RegionId region = open != buffer_.end() ? open->second : kNoRegion;
    if (input_.policy.reproducible) {
      // What the counter still holds, lowest (latest) first; one entry when the count is a power of two.
      auto& levels = levels_[window];
      region = levels.back().second;
      for (levels.pop_back(); !levels.empty(); levels.pop_back()) {
        Instruction in{.op = Op::add_grads, .layer = steps_[s].layer};
        in.target = {group, levels.back().second};
        in.source = region;
        builder_.add(std::move(in));
        region = levels.back().second;
      }
    }
    complete(window, region);
    buffer_.erase(window);
  }
}

// Binary counter: two partial sums of equal size become one, the older on the left.
void GradientPlan::add_leaf(Window window) {
  RegionId region = buffer_.at(window);
  buffer_.erase(window);
  auto& levels = levels_[window];
  int level = 0;
  for (; !levels.empty() && levels.back().first == level; ++level) {
    Instruction in{.op = Op::add_grads, .layer = input_.units.groups[window.first].unit};
    in.target = {window.first, levels.back().second};
    in.source = region;
    builder_.add(std::move(in));
    region = levels.back().second;
    levels.pop_back();
  }
  levels.emplace_back(level, region);
}

void GradientPlan::complete(Window window, RegionId region) {
  const int group = window.first;
  const bool first = completed_[group]++ == 0;
  if (input_.units.groups[group].sparse) {
    Instruction in{.op = Op::reduce_rows, .layer = input_.units.groups[group].unit};
    in.lane = input_.policy.overlap ? Lane::reduce : Lane::compute;
    in.target = {group, kNoRegion};
    builder_.add(std::move(in));
    return;
  }
  if (input_.world > 1) enqueue(group, region, !first);
  // A whole gradient that was summed elsewhere moves into the group's storage.
  if (region != kNoRegion && input_.policy.grads == Placement::replicated) deposit(group, region);
}

void GradientPlan::deposit(int group, RegionId region) {
  flush();
  if (!storage_cleared_[group]) clear({group, kNoRegion});
  storage_cleared_[group] = true;
  Instruction in{.op = Op::add_grads, .layer = input_.units.groups[group].unit};
  in.target = {group, kNoRegion};
  in.source = region;
  builder_.add(std::move(in));
}

void GradientPlan::enqueue(int group, RegionId region, bool accumulate) {
  const Group& g = input_.units.groups[group];
  const auto& chunks = g.partition.chunks();
  for (int c = 0; c < int(chunks.size()); ++c) {
    const int64_t elements = chunks[c].piece * input_.world;
    if (!pending_.empty() && pending_elements_ + elements > input_.policy.reduce_bucket) flush();
    const bool extends =
        !pending_.empty() && pending_.back().range.group == group && pending_.back().range.region == region;
    if (extends) {
      ++pending_.back().range.count;
    } else {
      pending_.push_back({{group, c, 1, region, accumulate}, g.unit});
    }
    pending_elements_ += elements;
  }
}

void GradientPlan::flush() {
  if (pending_.empty()) return;
  Instruction in{.op = Op::reduce, .layer = pending_.front().layer};
  in.lane = input_.policy.overlap ? Lane::reduce : Lane::compute;
  for (const Pending& pending : pending_) in.chunks.push_back(pending.range);
  if (input_.policy.wire != input_.policy.grad) {
    in.wire = builder_.region(Purpose::staging, size_t(pending_elements_) * size_of(input_.policy.wire));
  }
  builder_.add(std::move(in));
  // The previous reduction's buffers are only given up now: it may run beside the computation since then.
  for (RegionId region : draining_) builder_.hold(region);
  draining_.clear();
  if (input_.policy.overlap) {
    for (const Pending& pending : pending_) draining_.push_back(pending.range.region);
  }
  pending_.clear();
  pending_elements_ = 0;
}

}  // namespace zeno::zero
