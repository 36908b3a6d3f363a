// The implementation behind every communicator for CPU streams: runs operations one after the other, in the
// order they were issued, and moves the data. Runs on stream threads; the Communicator in front of it
// (group_communicator.cpp) only checks arguments and queues.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "zeno/base/workers.h"
#include "zeno/comm/rendezvous.h"
#include "zeno/comm/slices.h"

namespace zeno::comm {

// Lets operations pass in the order of their tickets, whichever streams they come from.
class Turnstile {
 public:
  uint64_t take() { return taken_++; }
  void await(uint64_t ticket, OpWait& wait);
  void pass();

 private:
  std::atomic<uint64_t> taken_{0}, passed_{0};
  Bell bell_;
};

class Group : public Rendezvous {
 public:
  explicit Group(GroupParts parts);

  // When the call is issued: gives the operation its number and an entry in the flight recorder. Error(usage)
  // for a sum that MPI does not support.
  void issue(Op& op);
  // On the stream.
  void run(const Op& op, Workers& workers);

 private:
  friend class DataMover;

  // Whether MPI sums. Groups within one host always use the tree.
  bool sums_over_network() const;
  void run_collective(const Op& op, Workers& workers, OpWait& wait);
  void run_send(const Op& op, OpWait& wait);
  void run_recv(const Op& op, OpWait& wait);
  void send_message(const Op& op, OpWait& wait);
  void receive_message(const Op& op, OpWait& wait);
  Turnstile& turnstile_of(const OpRecord& record);

  Turnstile collectives_;
  std::vector<Turnstile> sends_, recvs_;  // by the other rank
  // Slices from other hosts that wait to be summed, or the values that MPI sums.
  std::shared_ptr<std::byte[]> bounce_;
};

// Moves the data of one rendezvous, after the ranks have agreed and may read each other's memory.
class DataMover {
 public:
  DataMover(Group& group, const Op& op, std::span<const Part> parts,
            std::span<const ExchangeSlices> exchanges, Workers& workers, OpWait& wait);
  void run();

 private:
  void gather(int part);
  void reduce_scatter(int part);
  void all_reduce(int part);
  void all_to_all(int part);
  void broadcast(int part);

  Slices slices_of(int part) const;
  // Calls body with ranges [begin, end) of at most a chunk when messages or staging are needed, otherwise
  // once with all of [0, count).
  template <class Body>
  void for_chunks(int64_t count, int slices, const Body& body) const;
  int64_t chunk(int slices) const;

  void stage(const std::byte* from, int64_t elements, int64_t staged_at, int area);
  void stage_slices(int part, const Slices& slices, int64_t a, int64_t b);
  void meet_if_staged();
  // Address of what local peer `l` sent: in place at `element`, or in its staging area at `staged_at`.
  const std::byte* source(int l, int part, int64_t element, int64_t staged_at) const;
  void trade_with_remote(int part, const Slices& slices, int64_t a, int64_t b);
  void exchange_with_remote(int part);
  void stage_exchange(int part, int64_t a, int64_t b);
  // The longest slice of an exchange between any two ranks of this host.
  int64_t longest_local_slice(int part) const;
  void sum_over_network(int part);
  void add(std::span<const std::byte* const> inputs, std::byte* out, DType out_dtype, int64_t elements,
           bool streaming);
  void sum_slice(int part, const Slices& slices, int64_t a, int64_t b, bool streaming);
  void spread_results(int part, const Slices& slices, int64_t a, int64_t b);
  void collect_results(int part, const Slices& slices, int64_t a, int64_t b, bool streaming);
  void copy(std::byte* to, const std::byte* from, int64_t elements, bool streaming);

  bool mine(int local_index) const { return local_index == group_.board_.me(); }
  int peer(int distance) const { return (group_.board_.me() + distance) % group_.board_.ranks(); }

  Group& group_;
  const Op& op_;
  std::span<const Part> parts_;
  std::span<const ExchangeSlices> exchanges_;  // all_to_all: one for each part
  Workers& workers_;
  OpWait& wait_;
  const Layout& layout_;
  const int64_t width_;  // bytes per element
  bool staged_ = false;  // a local rank has a buffer that its peers cannot read
  bool chunked_ = false;
};

}  // namespace zeno::comm
