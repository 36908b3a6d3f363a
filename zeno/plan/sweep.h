// One setting on more and more ranks of a machine: memory, time, and goodput with failures. The batch of a
// rank stays, so that of a step grows.
#pragma once

#include <vector>

#include "zeno/plan/goodput.h"
#include "zeno/plan/plan_rows.h"
#include "zeno/plan/timeline.h"

namespace zeno::plan {

struct SweepPoint {
  int ranks = 1;
  PlanRow row;  // bytes of a rank, and whether they fit the machine
  StepTime time;
  Failures failures;
  double interval = 0;  // between checkpoints, the best
  double good = 0;      // part of the time that is progress
};

struct SweepQuestion {
  PlanModel model;
  zero::EngineOptions options;  // but for the mesh
  comm::MeshRequest mesh;       // but for the number of ranks
  Setting setting;              // groups of ranks are searched where `mesh` asks for none
  Machine machine;
  double failure_hours = 0;  // of a device
  double restart_s = 0;
};

SweepPoint sweep_point(const SweepQuestion& question, int ranks);

}  // namespace zeno::plan
