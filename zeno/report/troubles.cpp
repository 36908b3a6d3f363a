#include "zeno/report/troubles.h"

#include <algorithm>

namespace zeno::report {

Observation observe(std::span<const zero::RankTimes> ranks) {
  Observation o;
  if (ranks.empty()) return o;
  std::vector<float> own;
  for (const zero::RankTimes& times : ranks) own.push_back(times.own());
  const auto slowest = std::max_element(own.begin(), own.end());
  o.slowest = int(slowest - own.begin());
  o.spent = ranks[size_t(o.slowest)];
  own.erase(slowest);
  if (own.empty()) return o;
  const auto middle = own.begin() + std::ptrdiff_t(own.size() / 2);
  std::nth_element(own.begin(), middle, own.end());
  o.others_ms = *middle;
  return o;
}

void TroubleSums::add(const Observation& o) {
  ++steps;
  step_ms += o.step_ms;
  data += o.spent.data;
  if (!o.timed()) return;
  ++timed_steps;
  timed_ms += o.step_ms;
  compute += o.spent.compute;
  communication += o.spent.communication;
  link += o.spent.link;
  disk += o.spent.disk;
  other += o.spent.other;
  if (o.others_ms <= 0) return;
  Slow& slow = slowest[o.slowest];
  ++slow.steps;
  slow.own += o.spent.own();
  slow.others += o.others_ms;
  slow.link += o.spent.link;
  slow.disk += o.spent.disk;
  slow.data += o.spent.data;
}

namespace {

Trouble share_of(TroubleKind kind, const TroubleSums& sums, double ms) {
  return {.kind = kind, .share = sums.timed_share(ms), .steps = sums.timed_steps};
}

// Only a rank that is nearly always the last: who is now one and now another has its share of bad luck.
Trouble find_slow_rank(const TroubleSums& sums) {
  Trouble found{.kind = TroubleKind::slow_rank, .steps = sums.timed_steps};
  for (const auto& [rank, slow] : sums.slowest) {
    if (double(slow.steps) < Troubles::kAlways * double(sums.timed_steps)) continue;
    found.rank = rank;
    found.ratio = slow.own / slow.others;
    if (found.ratio < Troubles::kSlow) continue;
    const double more = slow.own - slow.others;
    found.share = sums.timed_share(more);
    using enum Trouble::Part;
    found.part = slow.data > more / 2   ? data
                 : slow.disk > more / 2 ? disk
                 : slow.link > more / 2 ? link
                                        : compute;
  }
  return found;
}

}  // namespace

Trouble Troubles::scale_trouble() const {
  Trouble found{.kind = TroubleKind::loss_scale, .steps = int64_t(skips_.size()), .scale = scale_};
  found.skipped = std::count(skips_.begin(), skips_.end(), true);
  found.share = double(found.skipped) / double(kWindow);
  if (scale_ < first_scale_ && scale_ <= kTinyScale) found.share = 1;
  return found;
}

// Over the whole run: saves are far apart. Steps beside a save are compared with the others.
Trouble Troubles::save_trouble() const {
  Trouble found{.kind = TroubleKind::checkpoint, .steps = seen_};
  const int64_t free_steps = total_.steps - saving_steps_;
  if (saves_ < 2 || free_steps <= 0) return found;
  const double usual = free_ms_ / double(free_steps);
  const double cost = saved_ms_ + std::max(0.0, saving_ms_ - usual * double(saving_steps_));
  found.share = cost / (total_.step_ms + saved_ms_);
  return found;
}

Troubles::Measures Troubles::measure(const TroubleSums& sums) const {
  using enum TroubleKind;
  Measures measures{share_of(communication, sums, sums.communication),
                    share_of(link, sums, sums.link),
                    share_of(disk, sums, sums.disk),
                    {.kind = data, .share = sums.share(sums.data), .steps = sums.steps},
                    find_slow_rank(sums),
                    scale_trouble(),
                    save_trouble()};
  // What only one rank waits for is that rank's trouble.
  const Trouble& slow = measures[size_t(slow_rank)];
  if (slow.share >= kLimits[size_t(slow_rank)]) {
    if (slow.part == Trouble::Part::link) measures[size_t(link)].share = 0;
    if (slow.part == Trouble::Part::disk) measures[size_t(disk)].share = 0;
    if (slow.part == Trouble::Part::data) measures[size_t(data)].share = 0;
  }
  return measures;
}

bool Troubles::tells(const Trouble& now) {
  Told& told = told_[size_t(now.kind)];
  const double limit = kLimits[size_t(now.kind)];
  if (now.share < limit / 2) told.open = false;
  if (now.share < limit) return false;
  const bool recently = told.at > 0 && seen_ - told.at < kWindow;
  const bool changed = now.share >= 1.5 * told.share || now.rank != told.rank;
  if (recently || (told.open && !changed)) return false;
  told = {true, now.share, now.rank, seen_};
  return true;
}

std::vector<Trouble> Troubles::look(const Observation& step) {
  ++seen_;
  if (first_scale_ == 0) first_scale_ = step.loss_scale;
  scale_ = step.loss_scale;
  skipped_ += step.skipped;
  skips_.push_back(step.skipped);
  if (int64_t(skips_.size()) > kWindow) skips_.pop_front();
  saves_ += step.saved_ms > 0;
  saved_ms_ += step.saved_ms;
  if (seen_ > kWarmUp) {
    total_.add(step);
    window_.add(step);
    (step.saving ? saving_ms_ : free_ms_) += step.step_ms;
    saving_steps_ += step.saving;
  }
  std::vector<Trouble> found;
  // Overflows are counted, not measured: they are sure at once.
  if (const Trouble scale = scale_trouble(); tells(scale)) found.push_back(scale);
  if (!whole(window_)) return found;
  for (const Trouble& now : measure(window_)) {
    if (now.kind != TroubleKind::loss_scale && tells(now)) found.push_back(now);
  }
  window_ = {};
  return found;
}

std::vector<Trouble> Troubles::all() const {
  std::vector<Trouble> found;
  if (sure()) {
    for (const Trouble& t : measure(total_)) {
      if (t.kind != TroubleKind::loss_scale && t.share >= kLimits[size_t(t.kind)]) found.push_back(t);
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const Trouble& a, const Trouble& b) { return a.share > b.share; });
  }
  Trouble scale = scale_trouble();
  scale.skipped = skipped_;
  scale.steps = seen_;
  // A search for the scale at the start of a long run is none.
  const bool many =
      double(skipped_) >= kLimits[size_t(TroubleKind::loss_scale)] * double(std::max(seen_, kWindow)) ||
      (scale_ < first_scale_ && scale_ <= kTinyScale);
  if (many) found.insert(found.begin(), scale);
  return found;
}

}  // namespace zeno::report
