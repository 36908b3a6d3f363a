// What every backend does for an operation besides moving its data: it checks that the ranks are about to run
// the same one, counts traffic, and turns every failure into one Error(peer) that names rank, operation and
// unit.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "zeno/comm/board.h"
#include "zeno/comm/peers.h"
#include "zeno/comm/slices.h"

namespace zeno::comm {

// An operation with everything it needs, on its way through a stream.
struct Op {
  OpRecord record;
  std::vector<Part> parts;
  std::vector<ExchangeSlices> exchanges;  // all_to_all: one for each part
  bool unequal = false;                   // it has a count for each rank, which the record does not include
  DType recv_dtype = DType::f32;
  bool accumulate = false;
  uint64_t flight = 0;  // handle in the flight recorder
};

class Rendezvous {
 public:
  explicit Rendezvous(GroupParts parts);

  const Layout& layout() const { return parts_.layout; }
  Traffic traffic() const;

 protected:
  ~Rendezvous() = default;

  // Gives an operation its number and an entry in the flight recorder.
  void enlist(Op& op, uint64_t sequence);
  // `record` must live as long as the wait.
  OpWait patience(const OpRecord& record) const;
  // Posts this rank's record, waits for those of all ranks, and checks that they agree, and that for
  // `exchanges` each pair of ranks has the same counts. The record may be replaced after board_.part().
  void agree(const Op& op, std::span<const Part> parts, std::span<const ExchangeSlices> exchanges,
             OpWait& wait);
  // The `exchanges` of parts [begin, begin + size) of an operation; none unless it is an all_to_all.
  static std::span<const ExchangeSlices> exchanges_of(const Op& op, size_t begin, size_t size);
  // Checks that what arrived is the message that this rank expects.
  void check_message(const Op& op, const OpRecord& theirs, OpWait& wait) const;
  void finish(RemoteWork& work, OpWait& wait);
  static void complete(RemoteWork& work, OpWait& wait);
  // Reports an error to the other ranks, unless they know of a failure already, and to the flight file or the
  // log.
  void tell(const std::exception& error) const noexcept;
  void count_traffic(const Op& op);
  // Says who is missing.
  std::string describe_stall(const OpRecord& record) const;
  // Index of a place among those of this host; -1 when it is on another host.
  int local_index_of(int place) const;

  GroupParts parts_;
  Board board_;

 private:
  void post_notes(std::span<const ExchangeSlices> exchanges);
  void check_notes(const OpRecord& record, std::span<const ExchangeSlices> exchanges, int peer,
                   std::span<const ExchangeNote> theirs, OpWait& wait) const;
  void exchange_notes(const OpRecord& record, std::span<const ExchangeSlices> exchanges, OpWait& wait);
  void exchange_records(const OpRecord& mine, OpWait& wait);
  std::string describe_operation(const OpRecord& record) const;
  // What this rank knows of the other ranks of its host, by rank of the world.
  std::map<int, std::string> describe_others() const;

  std::vector<OpRecord> records_;          // by place, for the running collective
  const RemoteWork* open_work_ = nullptr;  // of the running collective, for the stall report
  mutable std::mutex traffic_mutex_;
  Traffic traffic_;
};

}  // namespace zeno::comm
