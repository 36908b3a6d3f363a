#include "zeno/zero/program_check.h"

#include <algorithm>
#include <map>
#include <set>

#include "zeno/base/error.h"
#include "zeno/zero/program_builder.h"

namespace zeno::zero {
namespace {

class Checker {
 public:
  Checker(const Program& program, const UnitTable& units, const Policy& policy)
      : program_(program), units_(units), policy_(policy) {}

  void run() {
    compute_clocks();
    check_placement();
    check_residency();
    check_activations();
    check_ordering();
    if (program_.trains) check_updates();
  }

 private:
  using Clock = std::array<int, kLanes>;  // latest instruction of each lane that is known to be over

  void demand(bool ok, int i, const char* what) const {
    if (!ok)
      fail(ErrorKind::internal, "[program] instruction {} ({}): {}", i,
           describe(program_.instructions[i], units_), what);
  }

  int count() const { return int(program_.instructions.size()); }
  // Instructions are numbered through two runs of the list, one after the other.
  const Instruction& at(int n) const { return program_.instructions[size_t(n % count())]; }

  // clock_[n]: what has finished when n starts.
  void compute_clocks() {
    std::array<Clock, kLanes> lane_clock;
    Clock nothing;
    nothing.fill(-1);
    lane_clock.fill(nothing);
    for (int n = 0; n < 2 * count(); ++n) {
      const int i = n % count(), run = n - i;
      Clock& clock = lane_clock[size_t(at(n).lane)];
      const auto over = [&](int wait) {
        for (int lane = 0; lane < kLanes; ++lane)
          clock[size_t(lane)] = std::max(clock[size_t(lane)], clock_[size_t(wait)][size_t(lane)]);
        int& own = clock[size_t(at(wait).lane)];
        own = std::max(own, wait);
      };
      for (int wait : at(n).waits) {
        demand(wait < i && at(wait).signals, i, "waits for something later or silent");
        over(run + wait);
      }
      for (int wait : at(n).carried) {
        demand(wait > i && at(wait).signals, i, "carries a wait for something earlier or silent");
        if (run > 0) over(wait);
      }
      clock_.push_back(clock);
      clock[size_t(at(n).lane)] = n;
    }
  }

  bool ordered(int before, int after) const {
    const Lane lane = at(before).lane;
    return lane == at(after).lane || clock_[size_t(after)][size_t(lane)] >= before;
  }

  void check_placement() const {
    for (size_t a = 0; a < program_.regions.size(); ++a) {
      const Region& ra = program_.regions[a];
      ensure(
          ra.first >= 0 && ra.offset + ra.bytes <= program_.pool_bytes[size_t(ra.tier)][size_t(ra.purpose)],
          "[program] region {} lies outside its pool or is never used", a);
      for (size_t b = a + 1; b < program_.regions.size(); ++b) {
        const Region& rb = program_.regions[b];
        const bool meet = share_bytes(ra, rb) && ra.first <= rb.last && rb.first <= ra.last;
        ensure(!meet, "[program] regions {} and {} live together and share bytes", a, b);
      }
    }
  }

  void check_ordering() const {
    std::vector<std::vector<int>> touches(program_.regions.size());
    std::map<std::pair<int, int>, std::vector<int>> storage;
    for (int n = 0; n < 2 * count(); ++n) {
      for (RegionId id : touched_regions(at(n))) {
        const Region& region = program_.regions[size_t(id)];
        demand(region.first <= n % count() && n % count() <= region.last, n % count(),
               "touches memory that it no longer has");
        touches[size_t(id)].push_back(n);
      }
      for (const auto& key : touched_storage(at(n))) storage[key].push_back(n);
    }
    const auto chain = [&](const std::vector<int>& list) {
      for (size_t n = 1; n < list.size(); ++n)
        demand(ordered(list[n - 1], list[n]), list[n] % count(), "races on memory it shares");
    };
    for (const auto& list : touches) chain(list);
    for (const auto& [key, list] : storage) chain(list);
    for (size_t a = 0; a < touches.size(); ++a) {
      for (size_t b = 0; b < touches.size(); ++b) {
        const Region &before = program_.regions[a], &after = program_.regions[b];
        if (a == b || !share_bytes(before, after)) continue;
        // Half of the touches are those of the first run.
        const int last = touches[a][touches[a].size() / 2 - 1];
        const int first = before.last < after.first ? touches[b].front() : touches[b][touches[b].size() / 2];
        demand(ordered(last, first), first % count(), "reuses bytes too early");
      }
    }
  }

  bool stored_whole(const Group& group) const {
    return policy_.params == Placement::replicated || group.persistent;
  }

  void check_residency() const {
    std::map<RegionId, std::set<int>> filled;  // chunks gathered into a region
    std::map<int, std::set<int>> stored;       // chunks gathered into storage in this step
    std::set<RegionId> decoded;                // regions with parameters that were in NF4
    std::map<RegionId, std::set<int>> parts;   // chunks read from the disk into a region
    std::set<RegionId> brought;                // regions with what this rank keeps of a group
    for (int i = 0; i < int(program_.instructions.size()); ++i) {
      const Instruction& in = program_.instructions[i];
      const auto everything = [&](int group) {
        return units_.groups[size_t(group)].partition.chunks().size();
      };
      if (in.op == Op::gather) {
        for (const ChunkRange& range : in.chunks) {
          demand(in.source != kNoRegion ? brought.count(in.source) > 0
                                        : !units_.groups[size_t(range.group)].moves,
                 i, "gathers from parameters that are not there");
          auto& set = range.region == kNoRegion ? stored[range.group] : filled[range.region];
          for (int c = range.first; c < range.first + range.count; ++c) set.insert(c);
        }
      }
      if (in.op == Op::read && in.moved == Moved::params) {
        parts[in.target.region].insert(in.chunk);
        const int all =
            units_.first_chunk[size_t(in.target.group) + 1] - units_.first_chunk[size_t(in.target.group)];
        if (int(parts[in.target.region].size()) == all) brought.insert(in.target.region);
      }
      if (in.op == Op::fetch && in.moved == Moved::params && in.target.region != kNoRegion) {
        demand(in.source == kNoRegion || brought.count(in.source) > 0, i, "fetches what was not read");
        brought.insert(in.target.region);
      }
      if (in.op == Op::decode) {
        const Group& group = units_.groups[in.target.group];
        demand(in.source != kNoRegion
                   ? filled[in.source].size() == everything(in.target.group) || brought.count(in.source) > 0
                   : stored_whole(group) && !group.moves,
               i, "decodes parameters that are not gathered");
        decoded.insert(in.target.region);
      }
      for (const Binding& binding : in.params) {
        const Group& group = units_.groups[binding.group];
        const size_t chunks = group.partition.chunks().size();
        if (group.nf4) {
          demand(decoded.count(binding.region) > 0, i, "uses parameters that are not decoded");
          continue;
        }
        if (binding.region != kNoRegion) {
          demand(filled[binding.region].size() == chunks || brought.count(binding.region) > 0, i,
                 "uses parameters that are not gathered");
          continue;
        }
        demand(!group.moves, i, "uses parameters that are on another tier");
        const bool stale = group.trainable && policy_.optimizer == Placement::sharded;
        demand(stored_whole(group), i, "uses parameters that are sharded");
        demand(!stale || stored[binding.group].size() == chunks, i,
               "uses parameters before this step's gather");
      }
    }
  }

  // What a layer reads has been computed, or has come back from where it was sent.
  void check_activations() const {
    std::set<RegionId> made;
    for (int i = 0; i < count(); ++i) {
      const Instruction& in = program_.instructions[size_t(i)];
      const auto is_made = [&](RegionId region) { return region == kNoRegion || made.count(region) > 0; };
      if (in.op == Op::forward || in.op == Op::recompute || in.op == Op::loss || in.op == Op::backward)
        demand(is_made(in.x), i, "reads an activation that is not there");
      if (in.op == Op::backward)
        demand(is_made(in.y) && is_made(in.saved), i, "lacks the gradient of its output or what was saved");
      if (in.op == Op::forward || in.op == Op::recompute) made.insert({in.y, in.saved});
      if ((in.op == Op::store || in.op == Op::fetch) && in.moved == Moved::activation) {
        demand(is_made(in.source), i, "moves an activation that is not there");
        made.insert(in.target.region);
      }
    }
  }

  // Every chunk is updated once, where its states are, and what was brought goes back.
  void check_updates() const {
    std::vector<int> updates(units_.chunks.size(), 0);
    std::set<std::pair<int, RegionId>> cleared;
    std::set<RegionId> states, updated, made;
    for (int i = 0; i < count(); ++i) {
      const Instruction& in = program_.instructions[size_t(i)];
      const bool carries = in.moved == Moved::states;
      if (in.op == Op::zero_grads) cleared.insert({in.target.group, in.target.region});
      if (carries && (in.op == Op::read || in.op == Op::fetch)) states.insert(in.target.region);
      if (carries && (in.op == Op::store || in.op == Op::write))
        demand(updated.erase(in.source) == 1, i, "sends back states that were not updated");
      if (!carries && (in.op == Op::store || in.op == Op::write || in.op == Op::fetch)) made.erase(in.source);
      if (carries && in.op == Op::store && in.target.region != kNoRegion) updated.insert(in.target.region);
      if (in.op == Op::update) {
        if (in.made != kNoRegion) made.insert(in.made);
        ++updates[size_t(in.chunk)];
        demand(units_.chunks[size_t(in.chunk)].moves ? states.count(in.states) > 0 : in.states == kNoRegion,
               i, "updates states that are not there");
        if (in.states != kNoRegion) updated.insert(in.states);
      }
      for (const Binding& binding : in.grads) {
        if (binding.fresh) cleared.insert({binding.group, binding.region});
        demand(cleared.count({binding.group, binding.region}) > 0, i,
               "adds to gradients that were not cleared");
      }
    }
    ensure(made.empty(), "[program] new parameters of {} chunks do not go back", made.size());
    ensure(updated.empty(), "[program] states of {} chunks do not go back", updated.size());
    for (size_t c = 0; c < updates.size(); ++c) {
      ensure(updates[c] == int(units_.groups[size_t(units_.chunks[c].group)].trainable),
             "[program] chunk {} is updated {} times", c, updates[c]);
    }
  }

  const Program& program_;
  const UnitTable& units_;
  const Policy& policy_;
  std::vector<Clock> clock_;
};

}  // namespace

void check_program(const Program& program, const UnitTable& units, const Policy& policy) {
  Checker(program, units, policy).run();
}

}  // namespace zeno::zero
