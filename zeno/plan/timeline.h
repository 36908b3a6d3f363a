// The time of a training step, before anything runs: the step's program is walked with the cost of each
// instruction (instruction_cost.h). Lanes are in-order queues, instructions wait as the program says, and
// those that use the same part of the machine share it; steps follow each other until they take equally long.
// The stages of a pipeline are walked together, one rank of each: what one receives another must have sent.
// The ranks of a stage are taken to be alike.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/plan/instruction_cost.h"

namespace zeno::plan {

// What the compute lane waited for.
enum class Wait { communication, host_link, disk, cpu_updates, updates, pipeline };
inline constexpr int kWaits = int(Wait::pipeline) + 1;
std::string_view name_of(Wait wait);

struct StepTime {
  zero::Stage stage;  // of a pipeline: the one with most to compute, for which others wait; times are its own
  double step_s = 0;
  double tokens_per_s = 0;  // of all ranks
  double model_flops = 0;   // of a rank and step, the mean of the stages; nothing that is computed again
  // Seconds of a step: compute_s and all of `exposed` add up to step_s.
  double compute_s = 0;  // the compute lane, with the machine to itself
  std::array<double, kWaits> exposed{};
  std::array<double, zero::kLanes> busy{};  // a lane has something under way
  std::array<double, kResources> used{};    // by all lanes together, at full rate
  Resource bottleneck = Resource::compute;  // the one that is used longest

  // What was waited for, largest first.
  struct Exposed {
    std::string unit;
    std::string_view op;  // the name of an instruction
    double seconds = 0;
  };
  std::vector<Exposed> exposed_by_unit;
  // Of each instruction; 0 is when the compute lane began the step, other lanes may be ahead.
  struct Span {
    double start = 0, end = 0;
  };
  std::vector<Span> spans;

  double exposed_s() const;
  double flops_per_s() const { return model_flops / step_s; }  // of a rank
};

// On a machine of which the run uses the ranks of the mesh. The options' device is taken to be the machine's.
StepTime predict_step(const nn::LayerList& model, zero::EngineOptions options, const Machine& machine);

// The walk alone, with one cost per instruction: of all stages, or of the only one.
StepTime walk_stages(std::span<const zero::CompiledStep> steps, std::span<const std::vector<Cost>> costs);
StepTime walk_step(const zero::CompiledStep& step, const std::vector<Cost>& costs);

}  // namespace zeno::plan
