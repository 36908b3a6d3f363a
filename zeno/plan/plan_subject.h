// What `zeno plan` is asked about: a model folder, an architecture by flags, or a number of parameters.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/arch_flags.h"
#include "zeno/config/config_parser.h"
#include "zeno/model/config.h"

namespace zeno::cli {

struct PlanSubject {
  model::ModelConfig model;
  std::optional<double> params;  // all that is known; `model` is then one of about that size
  bool described = false;        // by flags: no run of this machine
};

// Exactly one of the three must be there. Throws Error(usage) or, for a folder, Error(data).
PlanSubject plan_subject(const config::ParsedConfig& parsed, const ArchFlags& arch,
                         const std::string& params);

}  // namespace zeno::cli
