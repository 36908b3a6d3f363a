#include "zeno/plan/timeline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/plan/stage_walk.h"

namespace zeno::plan {
namespace {

using zero::Instruction;

constexpr int kLeastSteps = 4;   // what a step leaves behind reaches the next ones
constexpr int kMostSteps = 8;    // steps that are still not alike then take turns
constexpr double kAlike = 1e-6;  // relative

// What an instruction needs of other stages: that a message has been sent, or that all have come to a
// collective.
struct Partner {
  int stage = 0, index = 0;
};
using Partners = std::vector<std::vector<Partner>>;  // by instruction

// Messages between two stages, and collectives of all of them, meet in the order of the programs.
std::vector<Partners> find_partners(std::span<const zero::CompiledStep> steps) {
  std::map<std::pair<int, int>, std::vector<Partner>> sent;
  std::vector<std::vector<int>> meetings(steps.size());
  for (int s = 0; s < int(steps.size()); ++s) {
    const std::vector<Instruction>& list = steps[size_t(s)].program.instructions;
    for (int i = 0; i < int(list.size()); ++i) {
      const auto use = comm_use_of(list[size_t(i)]);
      if (!use || !use->over.has(comm::Axis::pipe)) continue;
      if (const zero::Send* send = list[size_t(i)].as<zero::Send>())
        sent[{send->hop.from, send->hop.to}].push_back({s, i});
      else if (!list[size_t(i)].is<zero::Receive>())
        meetings[size_t(s)].push_back(i);
    }
  }
  std::vector<Partners> partners;
  for (int s = 0; s < int(steps.size()); ++s) {
    const std::vector<Instruction>& list = steps[size_t(s)].program.instructions;
    Partners& mine = partners.emplace_back(list.size());
    std::map<std::pair<int, int>, size_t> received;
    for (size_t i = 0; i < list.size(); ++i) {
      const zero::Receive* receive = list[i].as<zero::Receive>();
      if (receive == nullptr) continue;
      const std::pair hop(receive->hop.from, receive->hop.to);
      mine[i] = {sent.at(hop).at(received[hop]++)};
    }
    for (size_t meeting = 0; meeting < meetings[size_t(s)].size(); ++meeting) {
      for (int other = 0; other < int(steps.size()); ++other)
        mine[size_t(meetings[size_t(s)][meeting])].push_back({other, meetings[size_t(other)].at(meeting)});
    }
  }
  return partners;
}

class Walk {
 public:
  Walk(std::span<const zero::CompiledStep> steps, std::span<const std::vector<Cost>> costs)
      : steps_(steps), partners_(find_partners(steps)) {
    for (size_t s = 0; s < steps.size(); ++s) stages_.emplace_back(steps[s], costs[s]);
  }

  StepTime run() {
    StageWalk& slowest = *std::ranges::max_element(stages_, {}, &StageWalk::work);
    double last = 0;
    for (int step = 0;; ++step) {
      const double begin = now_;
      for (StageWalk& stage : stages_) stage.clear();
      while (slowest.step() == step) advance();
      const bool alike = std::abs(now_ - begin - last) <= kAlike * last;
      last = now_ - begin;
      if ((alike && step + 1 >= kLeastSteps) || step + 1 == kMostSteps)
        return slowest.summary(step, begin, now_);
    }
  }

 private:
  // Starts everything that can start, then advances to the time when the first of them ends.
  void advance() {
    // The last stage to come to a collective lets those before it begin.
    const int rounds = stages_.size() > 1 ? 2 : 1;
    for (int round = 0; round < rounds; ++round) {
      for (size_t s = 0; s < stages_.size(); ++s)
        stages_[s].start(now_, [&](Turn turn) { return has_arrived(s, turn); });
    }
    double pass = std::numeric_limits<double>::infinity();
    for (const StageWalk& stage : stages_) pass = std::min(pass, stage.next_end());
    ensure(std::isfinite(pass), "[plan] the simulated step is stuck at {} s", now_);
    now_ += pass;
    for (StageWalk& stage : stages_) stage.pass(pass, now_);
  }

  // All that it needs of other stages?
  bool has_arrived(size_t stage, Turn turn) const {
    const bool receives = steps_[stage].program.instructions[size_t(turn.index)].is<zero::Receive>();
    return std::ranges::all_of(partners_[stage][size_t(turn.index)], [&](const Partner& partner) {
      const StageWalk& other = stages_[size_t(partner.stage)];
      const Turn its{turn.step, partner.index};
      return receives ? other.has_ended(its) : other.is_ready(its);
    });
  }

  const std::span<const zero::CompiledStep> steps_;
  const std::vector<Partners> partners_;
  std::vector<StageWalk> stages_;
  double now_ = 0;
};

}  // namespace

std::string_view name_of(Wait wait) {
  constexpr std::array<std::string_view, kWaits> kNames{"communication", "host link", "disk",
                                                        "CPU updates",   "updates",   "other stages"};
  return kNames[size_t(wait)];
}

double StepTime::exposed_s() const { return std::accumulate(exposed.begin(), exposed.end(), 0.0); }

StepTime walk_stages(std::span<const zero::CompiledStep> steps, std::span<const std::vector<Cost>> costs) {
  for (size_t s = 0; s < steps.size(); ++s) {
    const size_t count = steps[s].program.instructions.size();
    ensure(costs.size() == steps.size() && costs[s].size() == count,
           "[plan] got {} costs for {} instructions", costs.size() == steps.size() ? costs[s].size() : 0,
           count);
  }
  return Walk(steps, costs).run();
}

StepTime walk_step(const zero::CompiledStep& step, const std::vector<Cost>& costs) {
  return walk_stages({&step, 1}, {&costs, 1});
}

StepTime predict_step(const nn::LayerList& model, zero::EngineOptions options, const Machine& machine) {
  options.device.kind = machine.kind;
  std::vector<zero::CompiledStep> steps;
  std::vector<std::vector<Cost>> costs;
  double flops = 0;
  for (const int rank : options.mesh.group(0, {comm::Axis::pipe})) {
    steps.push_back(zero::compile_step(model, options, rank));
    costs.push_back(CostModel(model, steps.back(), machine).of_all());
    for (const Cost& cost : costs.back()) flops += cost.model_flops;
  }
  StepTime time = walk_stages(steps, costs);
  const zero::CompiledStep& step = steps.front();
  const double tokens = double(step.shape.rows() * step.policy.micro_batches) * step.mesh.data_ranks();
  time.tokens_per_s = tokens / time.step_s;
  time.model_flops = flops / double(steps.size());
  return time;
}

}  // namespace zeno::plan
