#include "zeno/plan/sweep.h"

#include <algorithm>
#include <utility>

namespace zeno::plan {
namespace {

// A checkpoint is copied to the host beside the step, which stands still for what the copy takes longer than
// the next forward and backward; then all ranks of a node write through its disk.
Failures failures_of(const SweepQuestion& q, const PlanBytes& bytes, const StepTime& time, int world) {
  double states = 0;
  for (Tier tier : kTiers)
    states += double(bytes.at(tier, Purpose::masters) + bytes.at(tier, Purpose::moments));
  const Machine machine = q.machine.with_ranks(world);
  const double copy = states / machine.host_link;
  return {.between = run_mtbf(q.failure_hours, world),
          .restart = q.restart_s + states * machine.node_ranks / machine.disk_read,
          .stall = std::max(0.0, copy - time.step_s),
          .commit = copy + states * machine.node_ranks / machine.disk_write};
}

SweepPoint timed_point(const SweepQuestion& q, const Groups& groups, int world) {
  const Machine machine = q.machine.with_ranks(world);
  SweepPoint point;
  point.world = world;
  point.row.setting = q.setting;
  if (groups.ranks > 0) point.row.setting.groups = groups;
  const zero::EngineOptions options = with(q.options, point.row.setting);
  point.row.bytes = plan_bytes(q.model, options, world);
  set_missing(point.row, options.device,
              {size_t(machine.memory), size_t(machine.host_memory / machine.node_ranks)});
  point.time = predict_step(q.model.layers, options, q.machine, world);
  return point;
}

// By more than a plan can tell; what does not fit is no gain.
bool is_faster(const SweepPoint& a, const SweepPoint& b) {
  constexpr double kMore = 1.01;
  return a.row.fits() && (!b.row.fits() || a.time.tokens_per_s > kMore * b.time.tokens_per_s);
}

}  // namespace

SweepPoint sweep_point(const SweepQuestion& q, int world) {
  SweepPoint point;
  for (const Groups& groups : group_choices(with(q.options, q.setting), world)) {
    SweepPoint other = timed_point(q, groups, world);
    const bool first = groups.ranks == 0;
    if (first || is_faster(other, point)) point = std::move(other);
  }
  point.failures = failures_of(q, point.row.bytes, point.time, world);
  point.interval = std::max(best_interval(point.failures), point.time.step_s);
  point.good = goodput(point.failures, point.interval);
  return point;
}

}  // namespace zeno::plan
