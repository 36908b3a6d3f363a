#include "zeno/plan/stage_walk.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

namespace zeno::plan {
namespace {

using zero::Instruction;

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

}  // namespace

StageWalk::StageWalk(const zero::CompiledStep& step, std::span<const Cost> costs)
    : list_(step.program.instructions),
      units_(step.units),
      costs_(costs),
      exposed_(list_.size()),
      abroad_(list_.size()) {
  for (int i = 0; i < int(list_.size()); ++i) lanes_[size_t(list_[size_t(i)].lane)].queue.push_back(i);
  times_.emplace_back(list_.size());
}

// Without overlap the compute lane moves bytes too.
bool StageWalk::computes(int index) const {
  return costs_[size_t(index)].resource == Resource::compute &&
         wait_of(list_[size_t(index)], Resource::compute) != Wait::communication;
}

double StageWalk::work() const {
  double seconds = 0;
  for (const int index : compute().queue) seconds += computes(index) ? costs_[size_t(index)].seconds : 0;
  return seconds;
}

// At most two steps are under way: a lane begins one when the compute lane has done that two before.
bool StageWalk::make_ready(const LaneState& lane, double now) {
  const Turn turn = head(lane);
  if (lane.step > compute().step + 1) return false;
  if (lane.step == int(times_.size())) times_.emplace_back(list_.size());
  if (times(turn).ready >= 0) return true;
  Turn cause = lane.before;
  const auto is_done = [&](Turn needed) {
    if (times(needed).end < 0) return false;
    if (cause.index < 0 || times(needed).end > times(cause).end) cause = needed;
    return true;
  };
  const Instruction& in = list_[size_t(turn.index)];
  for (int wait : in.waits) {
    if (!is_done({turn.step, wait})) return false;
  }
  for (int wait : in.carried) {
    if (turn.step > 0 && !is_done({turn.step - 1, wait})) return false;
  }
  times(turn).ready = now;
  times(turn).cause = cause;
  return true;
}

void StageWalk::run(LaneState& lane, double now) {
  const Turn turn = head(lane);
  lane.running = true;
  lane.left = cost(turn).seconds;
  times(turn).start = now;
  if (&lane == &compute()) blame(turn, lane.idle_since, now);
}

// The compute lane was idle: for the instruction that ended last, for what that one had waited for, …
void StageWalk::blame(Turn turn, double from, double to) {
  while (turn.index >= 0 && to > from) {
    const Times& its = times(turn);
    for (const auto& [begin, seconds] : {std::pair{its.start, &exposed_}, {its.ready, &abroad_}}) {
      const double since = std::max(from, begin);
      (*seconds)[size_t(turn.index)] += std::max(0.0, to - since);
      to = std::min(to, since);
    }
    turn = its.cause;
  }
}

std::array<int, kResources> StageWalk::sharers() const {
  std::array<int, kResources> sharing{};
  for (const LaneState& lane : lanes_) {
    if (lane.running) ++sharing[size_t(cost(head(lane)).resource)];
  }
  return sharing;
}

double StageWalk::next_end() const {
  const auto sharing = sharers();
  double least = std::numeric_limits<double>::infinity();
  for (const LaneState& lane : lanes_) {
    if (lane.running) least = std::min(least, lane.left * sharing[size_t(cost(head(lane)).resource)]);
  }
  return least;
}

void StageWalk::pass(double seconds, double now) {
  const auto sharing = sharers();
  account(seconds, sharing);
  for (LaneState& lane : lanes_) {
    if (!lane.running) continue;
    const int shared = sharing[size_t(cost(head(lane)).resource)];
    const bool ends = lane.left * shared <= seconds * (1 + 1e-12);
    lane.left -= seconds / shared;
    if (ends) finish(lane, now);
  }
}

void StageWalk::finish(LaneState& lane, double now) {
  const Turn turn = head(lane);
  times(turn).end = now;
  lane.running = false;
  lane.before = turn;
  lane.idle_since = now;
  if (++lane.at < lane.queue.size()) return;
  lane.at = 0;
  ++lane.step;
}

void StageWalk::account(double seconds, const std::array<int, kResources>& sharing) {
  const LaneState& own = compute();
  const Resource resource = own.running ? cost(head(own)).resource : Resource::compute;
  const int sharers = sharing[size_t(resource)];
  for (const LaneState& lane : lanes_) {
    if (!lane.running) continue;
    const Turn turn = head(lane);
    time_.busy[size_t(&lane - lanes_.data())] += seconds;
    time_.used[size_t(cost(turn).resource)] += seconds / sharing[size_t(cost(turn).resource)];
    // What shares a part of the machine with the compute lane takes time from it.
    const bool slows = own.running && cost(turn).resource == resource;
    if (!slows) continue;
    if (&lane == &own && computes(turn.index)) {
      time_.compute_s += seconds / sharers;
    } else {
      exposed_[size_t(turn.index)] += seconds / sharers;
    }
  }
}

void StageWalk::clear() {
  time_ = {};
  std::ranges::fill(exposed_, 0.0);
  std::ranges::fill(abroad_, 0.0);
}

StepTime StageWalk::summary(int step, double begin, double now) const {
  StepTime result = time_;
  result.stage = units_.stage;
  result.step_s = now - begin;
  std::map<std::pair<int, size_t>, StepTime::Exposed> by_unit;  // and kind of action
  for (size_t i = 0; i < list_.size(); ++i) {
    result.model_flops += costs_[i].model_flops;
    // Lanes that are behind have not all done it: the step before was the same.
    const Times& its = times_[size_t(step)][i];
    const Times& before = times_[size_t(std::max(0, step - 1))][i];
    result.spans.push_back(its.end >= 0 ? StepTime::Span{its.start - begin, its.end - begin}
                                        : StepTime::Span{before.start - begin + result.step_s,
                                                         before.end - begin + result.step_s});
    if (exposed_[i] + abroad_[i] <= 0) continue;
    result.exposed[size_t(wait_of(list_[i], costs_[i].resource))] += exposed_[i];
    result.exposed[size_t(Wait::pipeline)] += abroad_[i];
    StepTime::Exposed& exposed = by_unit[{list_[i].unit, list_[i].action.index()}];
    exposed = {units_.unit_names[size_t(list_[i].unit)], name_of(list_[i]),
               exposed.seconds + exposed_[i] + abroad_[i]};
  }
  for (auto& [key, exposed] : by_unit) result.exposed_by_unit.push_back(std::move(exposed));
  std::ranges::stable_sort(result.exposed_by_unit, std::ranges::greater{}, &StepTime::Exposed::seconds);
  result.bottleneck = Resource(std::ranges::max_element(result.used) - result.used.begin());
  return result;
}

}  // namespace zeno::plan
