// Words for troubles: what it is, how much, where, and which settings help among those that exist and apply
// to the run. Pure functions of plain values.
#pragma once

#include <string>
#include <vector>

#include "zeno/config/config.h"
#include "zeno/report/troubles.h"
#include "zeno/zero/policy.h"

namespace zeno::report {

// What the advice depends on, besides the observed steps.
struct TroubleSetting {
  config::TrainConfig config;  // resolved
  zero::Policy policy;         // as the engine has it
  Device::Kind device = Device::Kind::cpu;
  int ranks = 1;
  int64_t largest_unit = 0;        // elements
  size_t disk_bytes = 0;           // of a rank, on disk
  std::vector<std::string> hosts;  // by rank; empty: all ranks are on one
};

// One line. `place`: what most of it was spent on ("gather blocks.7"); may be empty.
std::string describe(const Trouble& trouble, const TroubleSetting& setting, const std::string& place);

// The settings that help, the best first.
std::vector<std::string> remedies(const Trouble& trouble, const TroubleSetting& setting);

struct MemoryUse {
  size_t peak = 0, limit = 0;  // of a rank's device; limit 0: not known
};
// One paragraph at the end of a run. `lines`: what was wrong, each as describe() says it.
std::string advice(const Troubles& troubles, const std::vector<std::string>& lines,
                   const TroubleSetting& setting, MemoryUse memory);

}  // namespace zeno::report
