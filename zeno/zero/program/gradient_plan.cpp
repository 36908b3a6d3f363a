#include "zeno/zero/program/gradient_plan.h"

#include <algorithm>
#include <utility>

#include "zeno/base/error.h"

namespace zeno::zero {

GradientPlan::GradientPlan(const CompileInput& input, const std::vector<ComputeStep>& steps,
                           ProgramBuilder& builder)
    : input_(input),
      steps_(steps),
      builder_(builder),
      windows_(input.units.groups.size(), 0),
      completed_(input.units.groups.size(), 0),
      storage_cleared_(input.units.groups.size(), false) {
  for (int s = 0; s < int(steps.size()); ++s) {
    for (int group : grad_groups(steps[s])) last_touch_[window_of(group, steps[s])] = s;
  }
  for (const auto& [window, step] : last_touch_) ++windows_[size_t(window.first)];
}

std::vector<int> GradientPlan::grad_groups(const ComputeStep& step) const {
  std::vector<int> groups;
  if (step.pass != Pass::loss && step.pass != Pass::backward) return groups;
  for (int group : input_.units.layer_groups[step.layer]) {
    if (input_.units.groups[group].trainable) groups.push_back(group);
  }
  return groups;
}

// Gradients are in the group's own storage if every rank keeps all of them, otherwise in a region.
bool GradientPlan::in_region(const Group& group) const {
  return input_.policy.reproducible || !group.grads.empty();
}

GradientPlan::Window GradientPlan::window_of(int group, const ComputeStep& step) const {
  if (input_.policy.reproducible) return {group, step.layer};
  const bool per_micro_batch =
      in_region(input_.units.groups[group]) && input_.policy.order == Order::horizontal;
  return {group, per_micro_batch ? step.micro_batch : 0};
}

void GradientPlan::add(int unit, Action action, Lane lane) {
  builder_.add({.action = std::move(action), .lane = lane, .unit = unit});
}

void GradientPlan::clear(Binding grads) {
  add(input_.units.groups[grads.group].unit, ZeroGrads{.grads = grads});
}

RegionId GradientPlan::cleared_region(int group) {
  const size_t bytes = size_t(input_.units.groups[group].padded()) * size_of(input_.policy.grad);
  const RegionId region = builder_.region(Purpose::buckets, bytes);
  clear({group, region});
  return region;
}

// Whether this is the first step to touch its groups' buffers and its layer writes all of them. Then storage
// need not be cleared: the padding between tensors is zero from the start and never written. Regions are
// cleared because of their padding, and still written instead of added to: on a GPU the two may differ in
// bits.
bool GradientPlan::written_whole(const ComputeStep& step) const {
  const UnitTable& units = input_.units;
  const bool loss = step.pass == Pass::loss;
  if (!(loss ? input_.model.loss->writes_gradients() : input_.model.layers[step.layer]->writes_gradients()))
    return false;
  const std::vector<int>& params = units.layer_params[step.layer];
  const std::vector<int> groups = grad_groups(step);
  for (int group : groups) {
    const bool touched = in_region(units.groups[group]) ? buffer_.count(window_of(group, step)) > 0
                                                        : bool(storage_cleared_[group]);
    if (touched) return false;
    for (const FlatTensor& tensor : units.groups[group].layout.tensors()) {
      if (std::find(params.begin(), params.end(), tensor.id) == params.end()) return false;
    }
  }
  return !groups.empty();
}

GradBindings GradientPlan::bind(int s) {
  GradBindings bindings{.fresh = written_whole(steps_[s])};
  for (int group : grad_groups(steps_[s])) {
    const Window window = window_of(group, steps_[s]);
    if (!in_region(input_.units.groups[group])) {
      if (!storage_cleared_[group] && !bindings.fresh) clear({group, kNoRegion});
      storage_cleared_[group] = true;
      bindings.groups.push_back({group, kNoRegion});
      continue;
    }
    const auto open = buffer_.find(window);
    const RegionId region = open != buffer_.end() ? open->second : cleared_region(group);
    buffer_[window] = region;
    bindings.groups.push_back({group, region});
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
      // What is left in the counter, lowest (latest) first; one entry if the count is a power of two.
      auto& levels = levels_[window];
      region = levels.back().second;
      for (levels.pop_back(); !levels.empty(); levels.pop_back()) {
        add(steps_[s].layer, AddGrads{.sum = {group, levels.back().second}, .from = region});
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
    add(input_.units.groups[window.first].unit,
        AddGrads{.sum = {window.first, levels.back().second}, .from = region});
    region = levels.back().second;
    levels.pop_back();
  }
  levels.emplace_back(level, region);
}

void GradientPlan::complete(Window window, RegionId region) {
  const int group = window.first;
  const bool first = completed_[group]++ == 0;
  if (input_.units.groups[group].sparse) {
    add(input_.units.groups[group].unit, ReduceRows{input_.data_axes(), group}, reduce_lane());
    return;
  }
  if (!input_.data_axes().empty()) enqueue(group, region, !first);
  // A full gradient that was summed in a region moves into the group's storage.
  if (region != kNoRegion && input_.units.groups[group].grads.empty()) deposit(group, region);
}

void GradientPlan::deposit(int group, RegionId region) {
  flush();
  if (!storage_cleared_[group]) clear({group, kNoRegion});
  storage_cleared_[group] = true;
  add(input_.units.groups[group].unit, AddGrads{.sum = {group, kNoRegion}, .from = region});
}

void GradientPlan::enqueue(int group, RegionId region, bool accumulate) {
  const Partition& partition = input_.units.groups[group].partition;
  for (int c = 0; c < int(partition.chunks().size()); ++c) {
    const int64_t elements = partition.chunks()[c].piece * partition.ranks();
    if (!bucket_.empty() && bucket_elements_ + elements > input_.policy.reduce_bucket) flush();
    ChunkRange* last = bucket_.empty() ? nullptr : &bucket_.back().summand.chunks;
    if (last != nullptr && last->group == group && last->region == region) {
      ++last->count;
    } else {
      bucket_.push_back({{{group, c, 1, region}, accumulate}, completed_[group] == windows_[group]});
    }
    bucket_elements_ += elements;
  }
}

void GradientPlan::flush() {
  if (bucket_.empty()) return;
  const std::vector<Pending> bucket = std::exchange(bucket_, {});
  const int64_t elements = std::exchange(bucket_elements_, 0);
  std::vector<RegionId> sent;
  for (const Pending& pending : bucket) sent.push_back(pending.summand.chunks.region);
  const comm::Axes all = input_.data_axes();
  if ((all & comm::kShardAxes).empty() || !all.has(comm::Axis::outer)) {
    Reduce sum{.over = all, .scatter = !input_.policy.optimizer.empty()};
    for (const Pending& pending : bucket) sum.bucket.push_back(pending.summand);
    prepare_wire(sum, elements);
    reduce(std::move(sum));
  } else {
    reduce_in_two_levels(bucket, elements);
  }
  // The previous reduction's buffers are held until here, so that it can overlap the computation in between.
  for (RegionId region : draining_) builder_.hold(region);
  draining_ = input_.policy.overlap ? std::move(sent) : std::vector<RegionId>{};
}

void GradientPlan::reduce(Reduce reduce) {
  if (reduce.bucket.empty()) return;
  const int unit = input_.units.groups[reduce.bucket.front().chunks.group].unit;
  add(unit, std::move(reduce), reduce_lane());
}

// Adds the buffers of a reduction that sends `elements` in another dtype or in cells.
void GradientPlan::prepare_wire(Reduce& reduce, int64_t elements) {
  const Policy& policy = input_.policy;
  if (reduce.bucket.empty()) return;
  if (policy.coded_gradients && reduce.scatter && !policy.optimizer.empty()) {
    reduce.code = reduce.over.has(comm::Axis::outer) ? WireCode::int4 : WireCode::int8;
    for (RegionId* cells : {&reduce.wire, &reduce.arrived})
      *cells = builder_.region(Purpose::staging, wire_bytes(*reduce.code, elements));
  } else if (policy.wire != policy.grad && reduce.sharded.empty()) {
    reduce.wire = builder_.region(Purpose::staging, size_t(elements) * size_of(policy.wire));
  }
}

void GradientPlan::reduce_in_two_levels(const std::vector<Pending>& bucket, int64_t elements) {
  const comm::Axes near = input_.data_axes() & comm::kShardAxes, far{comm::Axis::outer};
  const bool everywhere = input_.policy.grads.has(far);  // each window is reduced across groups at once
  const int64_t sums = elements / input_.mesh.size(near);
  Reduce inside{.over = near}, across{.over = far, .sharded = near};
  across.scatter = input_.policy.optimizer.has(far);
  GatherSums whole{.over = near};
  for (const auto& [summand, last] : bucket) {
    inside.bucket.push_back({summand.chunks, summand.accumulate && !everywhere});
    if (everywhere || last) across.bucket.push_back({summand.chunks, summand.accumulate && everywhere});
    whole.bucket.push_back(summand.chunks);
  }
  prepare_wire(inside, elements);
  prepare_wire(across, sums);
  whole.wire = inside.wire;
  if (everywhere) inside.to = across.from = builder_.region(Purpose::staging, size_t(sums) * sizeof(float));
  reduce(std::move(inside));
  reduce(std::move(across));
  if (!input_.policy.optimizer.empty()) return;
  const int unit = input_.units.groups[whole.bucket.front().group].unit;
  add(unit, std::move(whole), reduce_lane());
}

}  // namespace zeno::zero
