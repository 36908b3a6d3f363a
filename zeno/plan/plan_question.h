// What a plan is asked: a config, a model, a machine and ranks, resolved as a run would resolve them.
#pragma once

#include <optional>
#include <string>

#include "zeno/config/config_parser.h"
#include "zeno/nn/layer.h"
#include "zeno/plan/advice.h"
#include "zeno/plan/machine/machine.h"
#include "zeno/plan/offload.h"
#include "zeno/plan/plan_subject.h"
#include "zeno/plan/sweep.h"

namespace zeno::plan {

// The machine of the run, as far as the config does not set it.
struct PlanPlace {
  std::string machine;      // its name or file (find_machine); empty: this one, as it was measured
  double between_rate = 0;  // GB/s between nodes over each rail; 0: as the machine has it
  int rails = 0;            // of a node; 0: as the machine has them
  int node_ranks = 0;       // 0: all on one host, on GPUs at most eight
};

struct PlanQuestion {
  config::ParsedConfig parsed;
  PlanSubject subject;
  nn::LayerList layers;
  Device device;
  zero::EngineOptions options;     // but for the mesh, of which they know who shares sequences
  std::optional<Machine> machine;  // for plans of time
  comm::MeshRequest mesh;
  MemoryLimits limits;      // of a rank; 0: not known
  bool batch_open = false;  // no micro-batch was given
};

PlanQuestion make_question(config::ParsedConfig parsed, PlanSubject subject, const PlanPlace& place);

// What is asked of advise() and sweep_point(). Both refer to the layers of the question, and throw
// Error(usage) where it has no machine.
AdviceQuestion advice_question(const PlanQuestion& question, Goal goal);
SweepQuestion sweep_question(const PlanQuestion& question, double failure_hours, double restart_s);

}  // namespace zeno::plan
