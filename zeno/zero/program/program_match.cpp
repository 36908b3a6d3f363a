#include "zeno/zero/program/program_match.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/rng.h"

namespace zeno::zero {
namespace {

class Matcher {
 public:
  Matcher(const std::vector<const std::vector<Communication>*>& ranks, const comm::Mesh& mesh)
      : ranks_(ranks), mesh_(mesh), next_(ranks.size(), 0) {}

  void run() {
    for (int rank = 0; rank < int(ranks_.size()); ++rank) ready_.push_back(rank);
    while (!ready_.empty()) {
      const int rank = ready_.back();
      ready_.pop_back();
      arrive(rank);
    }
    for (int rank = 0; rank < int(ranks_.size()); ++rank) {
      if (const Communication* op = current(rank)) report(rank, *op);
    }
  }

 private:
  // A communicator, by its use and the first rank of the group.
  struct Meeting {
    std::vector<int> group;
    size_t arrived = 0;
  };

  const Communication* current(int rank) const {
    const std::vector<Communication>& list = *ranks_[size_t(rank)];
    return next_[size_t(rank)] < list.size() ? &list[next_[size_t(rank)]] : nullptr;
  }

  void arrive(int rank) {
    const Communication* op = current(rank);
    if (op == nullptr) return;
    Meeting& meeting = meeting_of(rank, *op);
    if (++meeting.arrived < meeting.group.size()) return;
    meeting.arrived = 0;
    for (const int member : meeting.group) {
      if (member != rank && !op->fits(*current(member))) fail_between(rank, *op, member);
    }
    for (const int member : meeting.group) {
      ++next_[size_t(member)];
      ready_.push_back(member);
    }
  }

  // The meeting of the whole group, or of the two ends of a message.
  Meeting& meeting_of(int rank, const Communication& op) {
    const auto hop = op.hop ? std::pair(op.hop->from, op.hop->to) : std::pair(-1, -1);
    const auto [found, made] = meetings_.try_emplace({op.use, mesh_.first(rank, op.use.over), hop});
    if (!made) return found->second;
    std::vector<int> group = mesh_.group(rank, op.use.over);
    if (op.hop) group = {group[size_t(op.hop->from)], group[size_t(op.hop->to)]};
    return found->second = {std::move(group)};
  }

  // Names a member of its group that keeps it waiting.
  [[noreturn]] void report(int rank, const Communication& op) {
    for (const int member : meeting_of(rank, op).group) {
      const Communication* theirs = current(member);
      if (member != rank && (theirs == nullptr || !op.fits(*theirs))) fail_between(rank, op, member);
    }
    fail(ErrorKind::internal, "[program] rank {} waits in {} for nobody", rank, op.what);
  }

  [[noreturn]] void fail_between(int rank, const Communication& op, int other) const {
    const Communication* theirs = current(other);
    fail(ErrorKind::peer,
         "[program] the step programs of ranks {} and {} do not fit together: at collective {} rank {} is in "
         "{}, for "
         "which it needs rank {}, which {}",
         rank, other, next_[size_t(rank)] + 1, rank, op.what, other,
         theirs == nullptr ? "has come to its end" : "is in " + theirs->what);
  }

  const std::vector<const std::vector<Communication>*>& ranks_;
  const comm::Mesh& mesh_;
  std::vector<size_t> next_;  // by rank
  std::vector<int> ready_;    // ranks that have reached their next collective
  // By use, first rank of the group, and places of the ends of a message.
  std::map<std::tuple<CommUse, int, std::pair<int, int>>, Meeting> meetings_;
};

constexpr Hop kNoHop{-1, -1};

// One line for each: the numbers of the lane and the axes, the ends of a message, and its text.
std::string encode(const std::vector<Communication>& list) {
  std::string text;
  for (const auto& [use, what, hop, sends] : list) {
    const Hop ends = hop.value_or(kNoHop);
    text += fmt::format("{} {} {} {} {} {}\n", int(use.lane), use.over.bits(), ends.from, ends.to, int(sends),
                        what);
  }
  return text;
}

std::vector<Communication> decode(const std::string& text) {
  std::vector<Communication> list;
  std::istringstream lines(text);
  int lane = 0, sends = 0;
  unsigned axes = 0;
  Hop hop;
  while (lines >> lane >> axes >> hop.from >> hop.to >> sends) {
    Communication& op =
        list.emplace_back(Communication{{Lane(lane), comm::Axes::of_bits(axes)}, {}, {}, sends != 0});
    if (hop != kNoHop) op.hop = hop;
    lines.ignore();
    std::getline(lines, op.what);
  }
  return list;
}

std::string hash_of(const std::string& text) {
  uint64_t hash = text.size();
  for (const char c : text) hash = mix64(hash ^ uint64_t(static_cast<unsigned char>(c)));
  return fmt::format("{:016x}", hash);
}

}  // namespace

std::vector<Communication> communications_of(const Program& program, const UnitTable& units) {
  std::vector<Communication> list;
  for (const Instruction& in : program.instructions) {
    const auto use = comm_use_of(in);
    if (!use) continue;
    Communication& op = list.emplace_back(Communication{*use, describe(in, units), {}, in.is<Send>()});
    if (const Send* send = in.as<Send>()) op.hop = send->hop;
    if (const Receive* receive = in.as<Receive>()) op.hop = receive->hop;
    // The two ends have different texts.
    if (op.hop)
      op.what = fmt::format("message of {} mb{}", units.unit_names[size_t(in.unit)], in.micro_batch);
  }
  return list;
}

void match(const std::vector<const std::vector<Communication>*>& ranks, const comm::Mesh& mesh) {
  ensure(int(ranks.size()) == mesh.ranks(), "[program] {} programs for {} ranks", ranks.size(), mesh.ranks());
  Matcher(ranks, mesh).run();
}

// Programs are long and mostly equal, so only the first rank with each program sends it.
void match_programs(comm::World& world, const comm::Mesh& mesh, const std::vector<Communication>& mine) {
  const std::string text = encode(mine), hash = hash_of(text);
  const std::vector<std::string> hashes = world.exchange(hash, "hashes of step programs");
  const auto first_of_kind = [&](size_t rank) {
    return size_t(std::find(hashes.begin(), hashes.end(), hashes[rank]) - hashes.begin());
  };
  std::map<std::string, std::vector<Communication>> kinds{{hash, mine}};
  if (std::ranges::any_of(hashes, [&](const std::string& other) { return other != hash; })) {
    const bool first = first_of_kind(size_t(world.rank())) == size_t(world.rank());
    const std::vector<std::string> texts = world.exchange(first ? text : "", "step programs");
    for (size_t r = 0; r < texts.size(); ++r) {
      if (first_of_kind(r) == r) kinds.try_emplace(hashes[r], decode(texts[r]));
    }
  }
  std::vector<const std::vector<Communication>*> ranks;
  for (const std::string& kind : hashes) ranks.push_back(&kinds.at(kind));
  match(ranks, mesh);
}

}  // namespace zeno::zero
