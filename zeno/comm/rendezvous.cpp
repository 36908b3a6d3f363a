#include "zeno/comm/rendezvous.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <thread>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/comm/cost.h"

namespace zeno::comm {

namespace {

ExchangeNote note_to(int rank, const ExchangeSlices& slices) {
  return {slices.sent.begin(rank), slices.sent.size(rank), slices.received.size(rank)};
}

}  // namespace

Layout make_layout(int rank, std::span<const int> ranks, const std::vector<std::string>& hosts) {
  Layout layout;
  layout.size = int(ranks.size());
  layout.ranks.assign(ranks.begin(), ranks.end());
  for (int place = 0; place < layout.size; ++place) {
    const int other = ranks[size_t(place)];
    if (other == rank) {
      layout.rank = place;
      layout.local_index = int(layout.local.size());
    }
    (hosts[size_t(other)] == hosts[size_t(rank)] ? layout.local : layout.remote).push_back(place);
  }
  return layout;
}

std::vector<int> Layout::world_ranks(const std::vector<int>& places) const {
  std::vector<int> found;
  for (const int place : places) found.push_back(ranks[size_t(place)]);
  return found;
}

Rendezvous::Rendezvous(GroupParts parts)
    : parts_(std::move(parts)),
      board_(parts_.board_memory, int(parts_.layout.local.size()), parts_.layout.local_index,
             parts_.staging_bytes),
      records_(size_t(parts_.layout.size)) {}

void Rendezvous::enlist(Op& op, uint64_t sequence) {
  op.record.sequence = sequence;
  if (op.record.root >= 0) op.record.root_rank = layout().ranks[size_t(op.record.root)];
  op.flight =
      parts_.recorder->issue(parts_.name, op.record, op.record.elements * int64_t(size_of(op.record.dtype)));
}

OpWait Rendezvous::patience(const OpRecord& record) const {
  return OpWait(*parts_.watch, parts_.deadline,
                {[&] { return describe_operation(record); }, [&] { return describe_stall(record); }});
}

int Rendezvous::local_index_of(int rank) const {
  const auto found = std::find(layout().local.begin(), layout().local.end(), rank);
  return found == layout().local.end() ? -1 : int(found - layout().local.begin());
}

std::span<const ExchangeSlices> Rendezvous::exchanges_of(const Op& op, size_t begin, size_t size) {
  return op.exchanges.empty() ? std::span<const ExchangeSlices>()
                              : std::span(op.exchanges).subspan(begin, size);
}

void Rendezvous::agree(const Op& op, std::span<const Part> parts, std::span<const ExchangeSlices> exchanges,
                       OpWait& wait) {
  std::array<Address, Board::kMostParts> sends, recvs;
  const bool sending = op.record.kind != OpKind::broadcast || op.record.root == layout().rank;
  for (size_t p = 0; p < parts.size(); ++p) {
    sends[p] =
        sending && parts[p].count > 0 ? parts_.memory->publish(parts[p].send) : Address{.shared = true};
    // Only all_reduce lets peers read results.
    recvs[p] = op.record.kind == OpKind::all_reduce && parts[p].count > 0
                   ? parts_.memory->publish(parts[p].recv)
                   : Address{.shared = true};
  }
  post_notes(exchanges);
  board_.post(op.record, std::span(sends).first(parts.size()), std::span(recvs).first(parts.size()));
  board_.meet(wait);
  for (size_t l = 0; l < layout().local.size(); ++l) {
    records_[size_t(layout().local[l])] = board_.record(int(l));
  }
  if (parts_.link) exchange_records(op.record, wait);
  for (const OpRecord& record : records_) {
    if (same_operation(op.record, record)) continue;
    wait.fail_all(fmt::format("[comm] the ranks disagree on '{}': {}", parts_.name,
                              find_mismatch(records_, layout().ranks).value_or("(records changed)")));
  }
  if (!op.unequal || exchanges.empty()) return;
  for (int l = 0; l < board_.ranks(); ++l) {
    const std::span<const ExchangeNote> notes = board_.mailbox(l, board_.me()).notes;
    check_notes(op.record, exchanges, layout().local[size_t(l)], notes.first(exchanges.size()), wait);
  }
  if (!layout().remote.empty()) exchange_notes(op.record, exchanges, wait);
}

void Rendezvous::post_notes(std::span<const ExchangeSlices> exchanges) {
  for (int l = 0; l < board_.ranks() && !exchanges.empty(); ++l) {
    const int to = layout().local[size_t(l)];
    for (size_t p = 0; p < exchanges.size(); ++p) {
      board_.mailbox(board_.me(), l).notes[p] = note_to(to, exchanges[p]);
    }
  }
}

// Both ranks of a pair make the same checks, so neither moves data if the counts differ.
void Rendezvous::check_notes(const OpRecord& record, std::span<const ExchangeSlices> exchanges, int peer,
                             std::span<const ExchangeNote> theirs, OpWait& wait) const {
  const auto compare = [&](int sender, int64_t count, int receiver, int64_t expected, size_t part) {
    if (count == expected) return;
    wait.fail_all(fmt::format(
        "[comm] the ranks disagree on {} of '{}': rank {} sends {} {} elements to rank {}, which expects {} "
        "(part {})",
        title(record), parts_.name, layout().ranks[size_t(sender)], count, zeno::name_of(record.dtype),
        layout().ranks[size_t(receiver)], expected, part));
  };
  for (size_t p = 0; p < exchanges.size(); ++p) {
    compare(peer, theirs[p].count, layout().rank, exchanges[p].received.size(peer), p);
    compare(layout().rank, exchanges[p].sent.size(peer), peer, theirs[p].expected, p);
  }
}

void Rendezvous::exchange_notes(const OpRecord& record, std::span<const ExchangeSlices> exchanges,
                                OpWait& wait) {
  const size_t notes = exchanges.size(), ranks = layout().remote.size();
  std::vector<ExchangeNote> mine, theirs(ranks * notes);
  for (const int r : layout().remote) {
    for (const ExchangeSlices& slices : exchanges) mine.push_back(note_to(r, slices));
  }
  const auto batch = parts_.link->batch(Channel::records);
  for (size_t i = 0; i < ranks; ++i) {
    batch->receive(layout().remote[i], reinterpret_cast<std::byte*>(&theirs[i * notes]),
                   notes * sizeof(ExchangeNote));
  }
  for (size_t i = 0; i < ranks; ++i) {
    batch->send(layout().remote[i], reinterpret_cast<const std::byte*>(&mine[i * notes]),
                notes * sizeof(ExchangeNote));
  }
  finish(*batch, wait);
  for (size_t i = 0; i < ranks; ++i) {
    check_notes(record, exchanges, layout().remote[i], std::span(theirs).subspan(i * notes, notes), wait);
  }
}

void Rendezvous::exchange_records(const OpRecord& mine, OpWait& wait) {
  const auto batch = parts_.link->batch(Channel::records);
  for (const int r : layout().remote) {
    batch->receive(r, reinterpret_cast<std::byte*>(&records_[size_t(r)]), sizeof(OpRecord));
  }
  for (const int r : layout().remote) {
    batch->send(r, reinterpret_cast<const std::byte*>(&mine), sizeof(OpRecord));
  }
  finish(*batch, wait);
}

void Rendezvous::finish(RemoteWork& work, OpWait& wait) {
  struct Reset {
    const RemoteWork*& open;
    ~Reset() { open = nullptr; }
  } reset{open_work_};
  open_work_ = &work;
  complete(work, wait);
}

void Rendezvous::complete(RemoteWork& work, OpWait& wait) {
  constexpr int kEager = 64;
  for (int idle = 0; !work.test(); ++idle) {
    if (idle < kEager) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(std::min(idle, 1000)));
      wait.check();
    }
  }
}

void Rendezvous::tell(const std::exception& error) const noexcept {
  parts_.watch->report(layout().world_rank(), error.what());
  try {
    parts_.flight->tell(error.what(), parts_.watch->poll(), describe_others());
  } catch (...) {  // optional; the error itself is on its way
  }
}

std::map<int, std::string> Rendezvous::describe_others() const {
  std::map<int, std::string> seen;
  for (size_t l = 0; l < layout().local.size(); ++l) {
    if (int(l) == layout().local_index) continue;
    const OpRecord last = board_.last_done(int(l));
    seen[layout().ranks[size_t(layout().local[l])]] =
        last.sequence == 0 ? fmt::format("nothing completed on '{}'", parts_.name)
                           : fmt::format("last completed on '{}': operation {}, {}", parts_.name,
                                         last.sequence, title(last));
  }
  return seen;
}

std::string Rendezvous::describe_operation(const OpRecord& record) const {
  return fmt::format("{} (operation {} on '{}')", title(record), record.sequence, parts_.name);
}

std::string Rendezvous::describe_stall(const OpRecord& record) const {
  if (record.kind == OpKind::send || record.kind == OpKind::recv) {
    return fmt::format("rank {} has not {} (operation {} of this pair)", record.root_rank,
                       record.kind == OpKind::send ? "received" : "sent", record.sequence);
  }
  if (open_work_ != nullptr) {
    return fmt::format("messages with {} are open", list_ranks(open_work_->open()));
  }
  std::string text;
  for (const int l : board_.missing()) {
    const OpRecord last = board_.last_done(l);
    text += fmt::format(
        "{}rank {} has not arrived (last completed there: {})", text.empty() ? "" : ", ",
        layout().ranks[size_t(layout().local[size_t(l)])],
        last.sequence == 0 ? "nothing" : fmt::format("operation {}, {}", last.sequence, title(last)));
  }
  return text.empty() ? "an earlier operation of this communicator, issued on another stream, has not run"
                      : text;
}

void Rendezvous::count_traffic(const Op& op) {
  const int n = layout().size, rank = layout().rank;
  const DType dtype = op.record.dtype;
  const std::scoped_lock lock(traffic_mutex_);
  ++traffic_.calls;
  for (const ExchangeSlices& exchange : op.exchanges) {
    const int64_t sent = exchange.sent.total_without(rank), got = exchange.received.total_without(rank);
    traffic_.exchanged += all_to_all_cost(n, sent, got, dtype).bytes;
  }
  for (const Part& part : op.parts) {
    switch (op.record.kind) {
      case OpKind::all_gather:
        traffic_.gathered += all_gather_cost(n, part.count, dtype).bytes;
        break;
      case OpKind::broadcast:
        traffic_.gathered += broadcast_cost(n, rank == op.record.root, part.count, dtype).bytes;
        break;
      case OpKind::reduce_scatter:
        traffic_.reduced += reduce_scatter_cost(n, part.count, dtype).bytes;
        break;
      case OpKind::all_reduce:
        traffic_.reduced += all_reduce_cost(n, rank, part.count, dtype).bytes;
        break;
      case OpKind::send:
        traffic_.exchanged += send_cost(part.count, dtype).bytes;
        break;
      default:
        break;
    }
  }
}

Traffic Rendezvous::traffic() const {
  const std::scoped_lock lock(traffic_mutex_);
  Traffic traffic = traffic_;
  if (parts_.link) traffic.between_hosts = parts_.link->bytes_sent();
  return traffic;
}

void Rendezvous::check_message(const Op& op, const OpRecord& theirs, OpWait& wait) const {
  const OpRecord& mine = op.record;
  const bool same = theirs.kind == OpKind::send && theirs.sequence == mine.sequence &&
                    theirs.dtype == mine.dtype && theirs.elements == mine.elements &&
                    theirs.unit_hash == mine.unit_hash;
  if (same) return;
  wait.fail_all(fmt::format(
      "[comm] ranks {} and {} disagree on '{}': rank {} issued {} as number {}, rank {} issued {} "
      "as number {}",
      mine.root_rank, layout().world_rank(), parts_.name, mine.root_rank, describe(theirs), theirs.sequence,
      layout().world_rank(), describe(mine), mine.sequence));
}

}  // namespace zeno::comm
