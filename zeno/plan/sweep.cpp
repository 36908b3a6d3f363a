#include "zeno/plan/sweep.h"

#include <algorithm>

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

}  // namespace

SweepPoint sweep_point(const SweepQuestion& q, int world) {
  const Machine machine = q.machine.with_ranks(world);
  const zero::EngineOptions options = with(q.options, q.setting);
  SweepPoint point;
  point.world = world;
  point.row.setting = q.setting;
  point.row.bytes = plan_bytes(q.model, options, world);
  set_missing(point.row, options.device,
              {size_t(machine.memory), size_t(machine.host_memory / machine.node_ranks)});
  point.time = predict_step(q.model.layers, options, q.machine, world);
  point.failures = failures_of(q, point.row.bytes, point.time, world);
  point.interval = std::max(best_interval(point.failures), point.time.step_s);
  point.good = goodput(point.failures, point.interval);
  return point;
}

}  // namespace zeno::plan
