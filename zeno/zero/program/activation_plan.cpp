#include "zeno/zero/program/activation_plan.h"

namespace zeno::zero {
namespace {

// The first turn of a backward needs its checkpoint on the device, and during it the next turn's would have
// to come back.
constexpr int kStay = 2;

struct Turn {
  int begin = 0;   // step
  int number = 0;  // turns since the loss
};

std::vector<Turn> turns_of(const std::vector<ComputeStep>& steps) {
  std::vector<Turn> turns;
  const auto is_back = [](const ComputeStep& step) {
    return step.pass == Pass::recompute || step.pass == Pass::backward;
  };
  int number = 0;
  for (int s = 0; s < int(steps.size()); ++s) {
    if (steps[s].pass == Pass::loss) number = 0;
    if (!is_back(steps[s])) continue;
    const bool goes_on = is_back(steps[s - 1]) && steps[s - 1].phase == steps[s].phase &&
                         steps[s - 1].micro_batch == steps[s].micro_batch;
    if (!goes_on) turns.push_back({s, number++});
  }
  return turns;
}

}  // namespace

ActivationPlan::ActivationPlan(const CompileInput& input, const std::vector<ComputeStep>& steps,
                               ProgramBuilder& builder)
    : bytes_(size_t(input.shape.rows() * input.model.hidden) * size_of(input.policy.compute)),
      builder_(builder) {
  if (!input.policy.offload.activations || !input.policy.offload.far_host) return;
  std::map<Key, int> forward;  // step of each
  for (int s = 0; s < int(steps.size()); ++s) {
    if (steps[s].pass == Pass::forward) forward[{steps[s].layer, steps[s].micro_batch}] = s;
  }
  const std::vector<Turn> turns = turns_of(steps);
  for (size_t t = 0; t < turns.size(); ++t) {
    const ComputeStep& first = steps[turns[t].begin];
    // The input of the first layer is the tokens, which stay on the device.
    if (turns[t].number < kStay || first.pass != Pass::recompute || first.layer == 0) continue;
    const Key checkpoint{first.layer - 1, first.micro_batch};
    leaves_[forward.at({first.layer, first.micro_batch})] = checkpoint;
    returns_[turns[t - 1].begin] = checkpoint;
  }
}

void ActivationPlan::add(Lane lane, Key key, Action action) {
  builder_.add({.action = std::move(action), .lane = lane, .unit = key.first, .micro_batch = key.second});
}

void ActivationPlan::before(int s, Outputs& outputs) {
  const auto due = returns_.find(s);
  if (due == returns_.end()) return;
  const RegionId region = builder_.region(Purpose::activations, bytes_);
  add(Lane::refill, due->second,
      Fetch{.payload = {Moved::activation}, .from = on_host_.at(due->second), .to = region});
  outputs[due->second] = region;
}

void ActivationPlan::after(int s, const Outputs& outputs) {
  builder_.hold(draining_);
  draining_ = kNoRegion;
  const auto leaving = leaves_.find(s);
  if (leaving == leaves_.end()) return;
  draining_ = outputs.at(leaving->second);
  const RegionId region = builder_.region(Purpose::activations, bytes_, Tier::host);
  on_host_[leaving->second] = region;
  add(Lane::spill, leaving->second, Store{.payload = {Moved::activation}, .from = draining_, .to = region});
}

}  // namespace zeno::zero
