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
    check_ordering();
    check_residency();
    if (program_.trains) check_updates();
  }

 private:
  using Clock = std::array<int, kLanes>;  // latest instruction of each lane that is known to be over

  void demand(bool ok, int i, const char* what) const {
    if (!ok)
      fail(ErrorKind::internal, "[program] instruction {} ({}): {}", i,
           describe(program_.instructions[i], units_), what);
  }

  // clock_[i]: what has finished when i starts.
  void compute_clocks() {
    std::array<Clock, kLanes> lane_clock;
    lane_clock.fill(Clock{-1, -1, -1});
    for (int i = 0; i < int(program_.instructions.size()); ++i) {
      const Instruction& in = program_.instructions[i];
      Clock& clock = lane_clock[int(in.lane)];
      for (int wait : in.waits) {
        demand(wait < i && program_.instructions[wait].signals, i, "waits for something later or silent");
        const Clock& theirs = clock_[size_t(wait)];
        for (int lane = 0; lane < kLanes; ++lane) clock[lane] = std::max(clock[lane], theirs[lane]);
        int& own = clock[int(program_.instructions[wait].lane)];
        own = std::max(own, wait);
      }
      clock_.push_back(clock);
      clock[int(in.lane)] = i;
    }
  }

  bool ordered(int before, int after) const {
    const Lane lane = program_.instructions[before].lane;
    return lane == program_.instructions[after].lane || clock_[size_t(after)][int(lane)] >= before;
  }

  void check_placement() const {
    for (size_t a = 0; a < program_.regions.size(); ++a) {
      const Region& ra = program_.regions[a];
      ensure(ra.first >= 0 && ra.offset + ra.bytes <= program_.pool_bytes[int(ra.purpose)],
             "[program] region {} lies outside its pool or is never used", a);
      for (size_t b = a + 1; b < program_.regions.size(); ++b) {
        const Region& rb = program_.regions[b];
        const bool meet = ra.purpose == rb.purpose && ra.first <= rb.last && rb.first <= ra.last &&
                          ra.offset < rb.offset + rb.bytes && rb.offset < ra.offset + ra.bytes;
        ensure(!meet, "[program] regions {} and {} live together and share bytes", a, b);
      }
    }
  }

  void check_ordering() const {
    std::vector<std::vector<int>> touches(program_.regions.size());
    std::map<std::pair<int, int>, std::vector<int>> storage;
    for (int i = 0; i < int(program_.instructions.size()); ++i) {
      for (RegionId id : touched_regions(program_.instructions[i])) touches[size_t(id)].push_back(i);
      for (const auto& key : touched_storage(program_.instructions[i])) storage[key].push_back(i);
    }
    const auto chain = [&](const std::vector<int>& list) {
      for (size_t n = 1; n < list.size(); ++n)
        demand(ordered(list[n - 1], list[n]), list[n], "races on memory it shares");
    };
    for (const auto& list : touches) chain(list);
    for (const auto& [key, list] : storage) chain(list);
    for (size_t a = 0; a < touches.size(); ++a) {
      for (size_t b = 0; b < touches.size(); ++b) {
        const Region &before = program_.regions[a], &after = program_.regions[b];
        const bool reuse = before.purpose == after.purpose && before.last < after.first &&
                           before.offset < after.offset + after.bytes &&
                           after.offset < before.offset + before.bytes;
        if (reuse)
          demand(ordered(touches[a].back(), touches[b].front()), touches[b].front(),
                 "reuses bytes too early");
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
    for (int i = 0; i < int(program_.instructions.size()); ++i) {
      const Instruction& in = program_.instructions[i];
      if (in.op == Op::gather) {
        for (const ChunkRange& range : in.chunks) {
          auto& set = range.region == kNoRegion ? stored[range.group] : filled[range.region];
          for (int c = range.first; c < range.first + range.count; ++c) set.insert(c);
        }
      }
      if (in.op == Op::decode) {
        const Group& group = units_.groups[in.target.group];
        demand(in.source != kNoRegion ? filled[in.source].size() == group.partition.chunks().size()
                                      : stored_whole(group),
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
          demand(filled[binding.region].size() == chunks, i, "uses parameters that are not gathered");
          continue;
        }
        const bool stale = group.trainable && policy_.optimizer == Placement::sharded;
        demand(stored_whole(group), i, "uses parameters that are sharded");
        demand(!stale || stored[binding.group].size() == chunks, i,
               "uses parameters before this step's gather");
      }
    }
  }

  void check_updates() const {
    std::vector<int> updates(units_.groups.size(), 0);
    std::set<std::pair<int, RegionId>> cleared;
    for (int i = 0; i < int(program_.instructions.size()); ++i) {
      const Instruction& in = program_.instructions[i];
      if (in.op == Op::zero_grads) cleared.insert({in.target.group, in.target.region});
      if (in.op == Op::update) ++updates[size_t(in.target.group)];
      for (const Binding& binding : in.grads) {
        if (binding.fresh) cleared.insert({binding.group, binding.region});
        demand(cleared.count({binding.group, binding.region}) > 0, i,
               "adds to gradients that were not cleared");
      }
    }
    for (size_t g = 0; g < updates.size(); ++g) {
      ensure(updates[g] == int(units_.groups[g].trainable), "[program] group {} is updated {} times", g,
             updates[g]);
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
