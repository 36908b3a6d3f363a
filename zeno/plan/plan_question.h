// What `zeno plan` was asked: its flags, and what they say about a model, a machine and a world.
#pragma once

#include <optional>
#include <string>

#include "cli/arch_flags.h"
#include "cli/plan_subject.h"
#include "cli/run_flags.h"
#include "zeno/plan/machine/machine.h"
#include "zeno/plan/offload.h"

namespace zeno::cli {

struct PlanFlags {
  RunFlags run;
  ArchFlags arch;
  std::string params, compare, html, machine;
  std::string goal, write_config;  // advice
  std::string sweep;               // numbers of ranks by comma, or "all"
  double between_rate = 0;         // GB/s between nodes for each rank, instead of the machine's
  double failure_hours = 50'000;   // of a device, between two failures
  double restart_s = 300;
  std::string command;  // as it was typed
  int node_ranks = 0;   // 0: all on one host, on GPUs at most eight
  bool json = false, all = false;
};

// Resolved.
struct PlanQuestion {
  config::ParsedConfig parsed;
  PlanSubject subject;
  nn::LayerList layers;
  Device device;
  zero::EngineOptions options;
  std::optional<plan::Machine> machine;  // for plans of time
  int world = 1, node_ranks = 1;
  plan::MemoryLimits limits;  // of a rank; 0: not known
  bool batch_open = false;    // nobody said a micro-batch
};

PlanQuestion resolve(const PlanFlags& flags);

}  // namespace zeno::cli
