#include "zeno/plan/timeline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "zeno/base/error.h"

namespace zeno::plan {
namespace {

using zero::Instruction;
using zero::Lane;

constexpr int kLeastSteps = 4;   // what a step leaves behind reaches the next ones
constexpr int kMostSteps = 8;    // steps that are still not alike then take turns
constexpr double kAlike = 1e-6;  // relative

Wait wait_of(const Instruction& in, Resource resource) {
  switch (resource) {
    case Resource::network:
      return Wait::communication;
    case Resource::to_device:
    case Resource::to_host:
      return Wait::host_link;
    case Resource::disk:
      return Wait::disk;
    case Resource::host_cpu:
      return Wait::cpu_updates;
    case Resource::compute:
      break;
  }
  // The norm is a part of the updates.
  const bool collective = comm_use_of(in).has_value() && !in.is<zero::Norm>();
  return collective ? Wait::communication : Wait::updates;
}

// An instruction of one of the steps.
struct Turn {
  int step = 0, index = -1;
};

class Walk {
 public:
  Walk(const zero::CompiledStep& step, std::span<const Cost> costs)
      : list_(step.program.instructions),
        names_(step.units.unit_names),
        costs_(costs),
        exposed_(list_.size()) {
    for (int i = 0; i < int(list_.size()); ++i) lanes_[size_t(list_[size_t(i)].lane)].queue.push_back(i);
    add_step();
  }

  StepTime run() {
    double last = 0;
    for (int step = 0;; ++step) {
      const double begin = now_;
      time_ = {};
      std::ranges::fill(exposed_, 0.0);
      while (compute().step == step) advance();
      const bool alike = std::abs(now_ - begin - last) <= kAlike * last;
      last = now_ - begin;
      if ((alike && step + 1 >= kLeastSteps) || step + 1 == kMostSteps) return summary(step, begin);
    }
  }

 private:
  struct LaneState {
    std::vector<int> queue;
    int step = 0;
    size_t at = 0;  // in the queue
    bool running = false;
    double left = 0;           // seconds, alone
    Turn before{.index = -1};  // what it ran last
    double idle_since = 0;
  };
  struct Times {
    double start = 0, end = -1;
    Turn cause;  // what ended last of all it waited for
  };

  LaneState& compute() { return lanes_[size_t(Lane::compute)]; }
  Turn head(const LaneState& lane) const { return {lane.step, lane.queue[lane.at]}; }
  Times& times(Turn turn) { return times_[size_t(turn.step)][size_t(turn.index)]; }
  const Cost& cost(Turn turn) const { return costs_[size_t(turn.index)]; }
  // Without overlap the compute lane moves bytes too.
  bool computes(Turn turn) const {
    return cost(turn).resource == Resource::compute &&
           wait_of(list_[size_t(turn.index)], Resource::compute) != Wait::communication;
  }
  void add_step() { times_.emplace_back(list_.size()); }

  // Starts everything that can start, then advances to the time when the first of them ends.
  void advance() {
    for (LaneState& lane : lanes_) {
      if (!lane.running && !lane.queue.empty()) try_start(lane);
    }
    std::array<int, kResources> sharing{};
    for (const LaneState& lane : lanes_) {
      if (lane.running) ++sharing[size_t(cost(head(lane)).resource)];
    }
    double pass = std::numeric_limits<double>::infinity();
    const auto shared = [&](const LaneState& lane) { return sharing[size_t(cost(head(lane)).resource)]; };
    for (const LaneState& lane : lanes_) {
      if (lane.running) pass = std::min(pass, lane.left * shared(lane));
    }
    ensure(std::isfinite(pass), "[plan] the simulated step is stuck at {} s", now_);
    account(pass, sharing);
    now_ += pass;
    for (LaneState& lane : lanes_) {
      if (!lane.running) continue;
      const bool ends = lane.left * shared(lane) <= pass * (1 + 1e-12);
      lane.left -= pass / shared(lane);
      if (ends) finish(lane);
    }
  }

  // At most two steps are under way: a lane begins one when the compute lane has done that two before.
  void try_start(LaneState& lane) {
    const Turn turn = head(lane);
    if (lane.step > compute().step + 1) return;
    if (lane.step == int(times_.size())) add_step();
    Turn cause = lane.before;
    const auto is_done = [&](Turn needed) {
      if (times(needed).end < 0) return false;
      if (cause.index < 0 || times(needed).end > times(cause).end) cause = needed;
      return true;
    };
    const Instruction& in = list_[size_t(turn.index)];
    for (int wait : in.waits) {
      if (!is_done({turn.step, wait})) return;
    }
    for (int wait : in.carried) {
      if (turn.step > 0 && !is_done({turn.step - 1, wait})) return;
    }
    lane.running = true;
    lane.left = cost(turn).seconds;
    times(turn).start = now_;
    times(turn).cause = cause;
    if (&lane == &compute()) blame(cause, lane.idle_since, now_);
  }

  void finish(LaneState& lane) {
    const Turn turn = head(lane);
    times(turn).end = now_;
    lane.running = false;
    lane.before = turn;
    lane.idle_since = now_;
    if (++lane.at < lane.queue.size()) return;
    lane.at = 0;
    ++lane.step;
  }

  // The compute lane was idle: for the instruction that ended last, for what that one had waited for, …
  void blame(Turn turn, double from, double to) {
    while (turn.index >= 0 && to > from) {
      const double begin = std::max(from, times(turn).start);
      exposed_[size_t(turn.index)] += std::max(0.0, to - begin);
      to = std::min(to, begin);
      turn = times(turn).cause;
    }
  }

  void account(double pass, const std::array<int, kResources>& sharing) {
    const LaneState& own = compute();
    const Resource resource = own.running ? cost(head(own)).resource : Resource::compute;
    const int sharers = sharing[size_t(resource)];
    for (const LaneState& lane : lanes_) {
      if (!lane.running) continue;
      const Turn turn = head(lane);
      time_.busy[size_t(&lane - lanes_.data())] += pass;
      time_.used[size_t(cost(turn).resource)] += pass / sharing[size_t(cost(turn).resource)];
      // What shares a part of the machine with the compute lane takes time from it.
      const bool slows = own.running && cost(turn).resource == resource;
      if (!slows) continue;
      if (&lane == &own && computes(turn)) {
        time_.compute_s += pass / sharers;
      } else {
        exposed_[size_t(turn.index)] += pass / sharers;
      }
    }
  }

  StepTime summary(int step, double begin) {
    StepTime result = time_;
    result.step_s = now_ - begin;
    std::map<std::pair<int, size_t>, StepTime::Exposed> by_unit;  // and kind of action
    for (size_t i = 0; i < list_.size(); ++i) {
      result.model_flops += costs_[i].model_flops;
      // Lanes that are behind have not all done it: the step before was the same.
      const Times& now = times_[size_t(step)][i];
      const Times& before = times_[size_t(std::max(0, step - 1))][i];
      result.spans.push_back(now.end >= 0 ? StepTime::Span{now.start - begin, now.end - begin}
                                          : StepTime::Span{before.start - begin + result.step_s,
                                                           before.end - begin + result.step_s});
      if (exposed_[i] <= 0) continue;
      result.exposed[size_t(wait_of(list_[i], costs_[i].resource))] += exposed_[i];
      StepTime::Exposed& exposed = by_unit[{list_[i].unit, list_[i].action.index()}];
      exposed = {names_[size_t(list_[i].unit)], name_of(list_[i]), exposed.seconds + exposed_[i]};
    }
    for (auto& [key, exposed] : by_unit) result.exposed_by_unit.push_back(std::move(exposed));
    std::ranges::stable_sort(result.exposed_by_unit, std::ranges::greater{}, &StepTime::Exposed::seconds);
    result.bottleneck = Resource(std::ranges::max_element(result.used) - result.used.begin());
    return result;
  }

  const std::vector<Instruction>& list_;
  const std::vector<std::string>& names_;
  const std::span<const Cost> costs_;
  std::array<LaneState, zero::kLanes> lanes_;
  std::vector<std::vector<Times>> times_;  // by step
  std::vector<double> exposed_;            // seconds of the step by instruction
  StepTime time_;                          // of the step so far
  double now_ = 0;
};

}  // namespace

std::string_view name_of(Wait wait) {
  constexpr std::array<std::string_view, kWaits> kNames{"communication", "host link", "disk", "CPU updates",
                                                        "updates"};
  return kNames[size_t(wait)];
}

double StepTime::exposed_s() const { return std::accumulate(exposed.begin(), exposed.end(), 0.0); }

StepTime walk_step(const zero::CompiledStep& step, std::span<const Cost> costs) {
  ensure(costs.size() == step.program.instructions.size(), "[plan] got {} costs for {} instructions",
         costs.size(), step.program.instructions.size());
  return Walk(step, costs).run();
}

StepTime predict_step(const nn::LayerList& model, zero::EngineOptions options, const Machine& machine) {
  options.device.kind = machine.kind;
  const zero::CompiledStep step = zero::compile_step(model, options);
  StepTime time = walk_step(step, CostModel(model, step, machine).of_all());
  const double tokens = double(step.shape.rows() * step.policy.micro_batches) * step.mesh.data_ranks();
  time.tokens_per_s = tokens / time.step_s;
  return time;
}

}  // namespace zeno::plan
