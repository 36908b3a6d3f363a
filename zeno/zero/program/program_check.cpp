#include "zeno/zero/program/program_check.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/base/overload.h"
#include "zeno/zero/program/program_builder.h"

namespace zeno::zero {
namespace {

class Checker {
 public:
  Checker(const Program& program, const UnitTable& units) : program_(program), units_(units) {}

  void run() {
    compute_clocks();
    check_placement();
    check_residency();
    check_contents();
    check_ordering();
    if (!program_.trains) return check_changes_nothing();
    check_gradients();
    check_sums();
    check_updates();
  }

 private:
  using Clock = std::array<int, kLanes>;  // the latest instruction of each lane that is known to be done

  void demand(bool ok, int i, const char* what) const {
    if (!ok)
      fail(ErrorKind::internal, "[program] instruction {} ({}): {}", i,
           describe(program_.instructions[i], units_), what);
  }

  int count() const { return int(program_.instructions.size()); }
  // Instructions are numbered over two consecutive runs of the list.
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
    std::map<Storage, std::vector<int>> storage;
    for (int n = 0; n < 2 * count(); ++n) {
      const Touches touched = touches_of(at(n));
      for (const auto& [id, access] : touched.regions) {
        const Region& region = program_.regions[size_t(id)];
        demand(region.first <= n % count() && n % count() <= region.last, n % count(),
               "touches memory that it no longer has");
        touches[size_t(id)].push_back(n);
      }
      for (const auto& [kept, access] : touched.storage) storage[kept].push_back(n);
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
        // The first half of the touches are those of the first run.
        const int last = touches[a][touches[a].size() / 2 - 1];
        const int first = before.last < after.first ? touches[b].front() : touches[b][touches[b].size() / 2];
        demand(ordered(last, first), first % count(), "reuses bytes too early");
      }
    }
  }

  size_t chunks_of(int group) const { return units_.groups[size_t(group)].partition.chunks().size(); }

  // Where parameters are at the current instruction of the walk.
  struct Residents {
    // By chunk: the axes over which its contents are still sharded.
    std::map<RegionId, std::map<int, comm::Axes>> filled;  // a region
    std::map<int, std::map<int, comm::Axes>> stored;  // a group's storage, if gathers of this step changed it
    std::set<RegionId> encoded;                       // regions with this rank's part of a group in cells
    std::set<RegionId> decoded;                       // regions with parameters that were in cells
    std::map<RegionId, std::set<int>> parts;          // chunks read from the disk into a region
    std::set<RegionId> brought;                       // regions with what this rank keeps of a group
  };

  void check_residency() const {
    Residents here;
    for (int i = 0; i < count(); ++i) {
      std::visit(
          Overload{[&](const Encode& op) { encodes(op, i, here); },
                   [&](const Gather& op) { gathers(op, i, here); }, [&](const Read& op) { reads(op, here); },
                   [&](const Fetch& op) { fetches(op, i, here); },
                   [&](const Decode& op) { decodes(op, i, here); }, [](const auto&) {}},
          at(i).action);
      for (const Binding& binding : params_of(at(i))) check_use(binding, i, here);
    }
  }

  void encodes(const Encode& op, int i, Residents& here) const {
    const Group& group = units_.groups[size_t(op.group)];
    demand(op.from != kNoRegion ? here.brought.count(op.from) > 0 : !group.moves, i,
           "encodes parameters that are not there");
    for (int c = 0; c < int(chunks_of(op.group)); ++c) {
      demand(op.from != kNoRegion || parts_stored(op.group, c, here) == group.params, i,
             "encodes parameters before this step's gather");
      here.filled[op.to][c] = group.params;
    }
    here.encoded.insert(op.to);
  }

  void gathers(const Gather& op, int i, Residents& here) const {
    const ChunkRange& chunks = op.chunks;
    const Group& group = units_.groups[size_t(chunks.group)];
    const bool cells = group.int8 && chunks.region != kNoRegion;
    demand(!cells || (op.in_place && here.encoded.count(chunks.region) > 0), i,
           "gathers cells that were not encoded");
    demand(op.from != kNoRegion ? here.brought.count(op.from) > 0 : op.in_place || !group.moves, i,
           "gathers from parameters that are not there");
    const bool in_storage = chunks.region == kNoRegion;
    for (int c = chunks.first; c < chunks.first + chunks.count; ++c) {
      const comm::Axes stored = parts_stored(chunks.group, c, here);
      comm::Axes& parts = (in_storage ? here.stored[chunks.group] : here.filled[chunks.region])
                              .try_emplace(c, in_storage ? stored : op.sharded)
                              .first->second;
      const comm::Axes source = op.in_place ? parts : op.from != kNoRegion ? group.params : stored;
      demand(source == op.sharded && op.sharded.has(op.over), i,
             "gathers parts other than those that are there");
      parts = op.sharded - op.over;
    }
  }

  // Until a gather completes a chunk, a rank has of it what it updates.
  comm::Axes parts_stored(int g, int chunk, const Residents& here) const {
    const auto changed = here.stored.find(g);
    if (changed != here.stored.end() && changed->second.count(chunk) > 0) return changed->second.at(chunk);
    const Group& group = units_.groups[size_t(g)];
    return group.stale() ? group.optimizer : group.params;
  }

  bool stored_whole(int group, const Residents& here) const {
    for (int c = 0; c < int(chunks_of(group)); ++c) {
      if (!parts_stored(group, c, here).empty()) return false;
    }
    return true;
  }

  bool filled_whole(RegionId region, int group, const Residents& here) const {
    const auto filled = here.filled.find(region);
    if (filled == here.filled.end() || filled->second.size() != chunks_of(group)) return false;
    return std::ranges::all_of(filled->second, [](const auto& chunk) { return chunk.second.empty(); });
  }

  void reads(const Read& op, Residents& here) const {
    if (op.payload.kind != Moved::params) return;
    std::set<int>& parts = here.parts[op.to];
    parts.insert(op.payload.chunk);
    const size_t group = size_t(op.payload.group);
    if (int(parts.size()) == units_.first_chunk[group + 1] - units_.first_chunk[group])
      here.brought.insert(op.to);
  }

  void fetches(const Fetch& op, int i, Residents& here) const {
    if (op.payload.kind != Moved::params || op.to == kNoRegion) return;
    demand(op.from == kNoRegion || here.brought.count(op.from) > 0, i, "fetches what was not read");
    here.brought.insert(op.to);
  }

  void decodes(const Decode& op, int i, Residents& here) const {
    const Group& group = units_.groups[size_t(op.group)];
    demand(op.from != kNoRegion ? filled_whole(op.from, op.group, here) || here.brought.count(op.from) > 0
                                : stored_whole(op.group, here) && !group.moves,
           i, "decodes parameters that are not gathered");
    here.decoded.insert(op.to);
  }

  void check_use(const Binding& binding, int i, Residents& here) const {
    const Group& group = units_.groups[size_t(binding.group)];
    if (group.coded())
      return demand(here.decoded.count(binding.region) > 0, i, "uses parameters that are not decoded");
    if (binding.region != kNoRegion)
      return demand(
          filled_whole(binding.region, binding.group, here) || here.brought.count(binding.region) > 0, i,
          "uses parameters that are not gathered");
    demand(!group.moves, i, "uses parameters that are on another tier");
    demand(group.params.empty(), i, "uses parameters that are sharded");
    demand(stored_whole(binding.group, here), i, "uses parameters before this step's gather");
  }

  // What an instruction reads was computed or fetched in this step.
  void check_contents() const {
    std::set<RegionId> written;
    for (int i = 0; i < count(); ++i) {
      const Touches touches = touches_of(at(i));
      for (const auto& [id, access] : touches.regions)
        demand(access == Access::write || written.count(id) > 0, i, "reads memory that nothing has written");
      for (const auto& [id, access] : touches.regions) {
        if (access != Access::read) written.insert(id);
      }
    }
  }

  // What was fetched for updates, what they made, and what has not gone back yet.
  struct Updates {
    std::vector<int> of_chunk;
    std::set<RegionId> states, updated, made;
  };

  // Every chunk is updated once, where its states are, and what was fetched goes back.
  void check_updates() const {
    Updates so_far{.of_chunk = std::vector<int>(units_.chunks.size(), 0)};
    for (int i = 0; i < count(); ++i) {
      std::visit(Overload{[&](const Read& op) { comes(op.payload, kNoRegion, op.to, so_far); },
                          [&](const Fetch& op) { comes(op.payload, op.from, op.to, so_far); },
                          [&](const Store& op) { goes_back(op.payload, op.from, op.to, i, so_far); },
                          [&](const Write& op) { goes_back(op.payload, op.from, kNoRegion, i, so_far); },
                          [&](const Update& op) { updates(op, i, so_far); }, [](const auto&) {}},
                 at(i).action);
    }
    ensure(so_far.made.empty(), "[program] new parameters of {} chunks do not go back", so_far.made.size());
    ensure(so_far.updated.empty(), "[program] states of {} chunks do not go back", so_far.updated.size());
    for (size_t c = 0; c < units_.chunks.size(); ++c) {
      ensure(so_far.of_chunk[c] == int(units_.groups[size_t(units_.chunks[c].group)].trainable),
             "[program] chunk {} is updated {} times", c, so_far.of_chunk[c]);
    }
  }

  // Parameters that the CPU made go to the device by a fetch.
  static void comes(const Payload& payload, RegionId from, RegionId to, Updates& so_far) {
    if (payload.kind == Moved::states) so_far.states.insert(to);
    if (payload.kind == Moved::params) so_far.made.erase(from);
  }

  void goes_back(const Payload& payload, RegionId from, RegionId to, int i, Updates& so_far) const {
    if (payload.kind == Moved::params) so_far.made.erase(from);
    if (payload.kind != Moved::states) return;
    demand(so_far.updated.erase(from) == 1, i, "sends back states that were not updated");
    if (to != kNoRegion) so_far.updated.insert(to);  // on its way to disk
  }

  void updates(const Update& op, int i, Updates& so_far) const {
    ++so_far.of_chunk[size_t(op.chunk)];
    demand(
        units_.chunks[size_t(op.chunk)].moves ? so_far.states.count(op.states) > 0 : op.states == kNoRegion,
        i, "updates states that are not there");
    if (op.states != kNoRegion) so_far.updated.insert(op.states);
    if (op.made != kNoRegion) so_far.made.insert(op.made);
  }

  // Gradients are cleared, or written, before they are added to.
  void check_gradients() const {
    std::set<std::pair<int, RegionId>> cleared;
    for (int i = 0; i < count(); ++i) {
      if (const ZeroGrads* op = at(i).as<ZeroGrads>()) cleared.insert({op->grads.group, op->grads.region});
      const GradBindings* grads = grads_of(at(i));
      if (grads == nullptr) continue;
      for (const auto& [group, region] : grads->groups) {
        if (grads->fresh) cleared.insert({group, region});
        demand(cleared.count({group, region}) > 0, i, "adds to gradients that were not cleared");
      }
    }
  }

  // A gradient is summed over all ranks that see other data before it is scanned.
  void check_sums() const {
    std::map<std::pair<int, int>, comm::Axes> summed;  // by group and chunk
    comm::Axes all;
    for (int i = 0; i < count(); ++i) {
      if (const Norm* norm = at(i).as<Norm>()) all = norm->over & comm::kDataAxes;
      const Reduce* reduce = at(i).as<Reduce>();
      if (reduce == nullptr) continue;
      const bool has_cells = reduce->wire != kNoRegion && reduce->arrived != kNoRegion;
      demand(!reduce->code || (reduce->scatter && has_cells), i, "exchanges cells without a place for them");
      for (const auto& [chunks, accumulate] : reduce->bucket) {
        for (int c = chunks.first; c < chunks.first + chunks.count; ++c) {
          comm::Axes& over = summed[{chunks.group, c}];
          if (!accumulate && reduce->sharded.empty()) over = {};
          demand(reduce->sharded.empty() || over.has(reduce->sharded), i, "sums parts that are not summed");
          over = over | reduce->over;
        }
      }
    }
    for (int g = 0; g < int(units_.groups.size()); ++g) {
      const Group& group = units_.groups[size_t(g)];
      const bool dense = group.here && group.trainable && !group.sparse;
      for (int c = 0; dense && c < int(chunks_of(g)); ++c) {
        const auto found = summed.find({g, c});
        const bool whole = all.empty() || (found != summed.end() && found->second == all);
        ensure(whole, "[program] gradients of group {}, chunk {}, are not summed over {}", g, c,
               describe(all));
      }
    }
  }

  // An evaluation does not change gradients or states.
  void check_changes_nothing() const {
    for (int i = 0; i < count(); ++i) {
      for (const auto& [kept, access] : touches_of(at(i)).storage) {
        const bool state = kept.what == Kept::grads || kept.what == Kept::states;
        demand(!state || access == Access::read, i, "changes state in an evaluation");
      }
    }
  }

  const Program& program_;
  const UnitTable& units_;
  std::vector<Clock> clock_;
};

}  // namespace

void check_program(const Program& program, const UnitTable& units) { Checker(program, units).run(); }

}  // namespace zeno::zero
