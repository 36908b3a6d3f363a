#include "zeno/plan/sweep.h"

#include <algorithm>
#include <utility>

namespace zeno::plan {
namespace {

// A checkpoint is copied to the host beside the step, which stands still for what the copy takes longer than
// the next forward and backward; then all ranks of a node write through its disk.
Failures failures_of(const SweepQuestion& q, const PlanBytes& bytes, const StepTime& time, int ranks) {
  double states = 0;
  for (Tier tier : kTiers)
    states += double(bytes.at(tier, Purpose::masters) + bytes.at(tier, Purpose::moments));
  const Machine machine = q.machine.with_ranks(ranks);
  const double copy = states / machine.host_link;
  return {.between = run_mtbf(q.failure_hours, ranks),
          .restart = q.restart_s + states * machine.node_ranks / machine.disk_read,
          .stall = std::max(0.0, copy - time.step_s),
          .commit = copy + states * machine.node_ranks / machine.disk_write};
}

zero::EngineOptions options_of(const SweepQuestion& q, int ranks) {
  comm::MeshRequest mesh = q.mesh;
  mesh.ranks = ranks;
  return on_mesh(q.options, mesh);
}

SweepPoint timed_point(const SweepQuestion& q, const Groups& groups, int ranks) {
  const Machine machine = q.machine.with_ranks(ranks);
  SweepPoint point;
  point.ranks = ranks;
  point.row.setting = q.setting;
  if (groups.ranks > 0) point.row.setting.groups = groups;
  const zero::EngineOptions options = with(options_of(q, ranks), point.row.setting);
  point.row.bytes = plan_bytes(q.model, options);
  set_missing(point.row, options.device,
              {size_t(machine.memory), size_t(machine.host_memory / machine.node_ranks)});
  point.time = predict_step(q.model.layers, options, q.machine);
  return point;
}

// By more than a plan can tell; what does not fit is no gain.
bool is_faster(const SweepPoint& a, const SweepPoint& b) {
  constexpr double kMore = 1.01;
  return a.row.fits() && (!b.row.fits() || a.time.tokens_per_s > kMore * b.time.tokens_per_s);
}

}  // namespace

SweepPoint sweep_point(const SweepQuestion& q, int ranks) {
  SweepPoint point;
  for (const Groups& groups : group_choices(with(options_of(q, ranks), q.setting), open_host(q.mesh))) {
    SweepPoint other = timed_point(q, groups, ranks);
    const bool first = groups.ranks == 0;
    if (first || is_faster(other, point)) point = std::move(other);
  }
  point.failures = failures_of(q, point.row.bytes, point.time, ranks);
  point.interval = std::max(best_interval(point.failures), point.time.step_s);
  point.good = goodput(point.failures, point.interval);
  return point;
}

}  // namespace zeno::plan
