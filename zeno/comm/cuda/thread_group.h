// Ranks as threads of one process, on CUDA streams: one rank's view of a communicator. The host threads meet
// on the board, post where their buffers are, and compare what they are about to run; then each stream waits
// on the device for the events of the others and reads their memory directly, and no stream goes on before
// all have read. No host waits for a device except after a failure.
//
// Order of events, per rendezvous: `ready` is recorded before the first meeting and waited for after it,
// `done` before the last meeting and waited for after it. So neither is recorded again while a peer may still
// have to wait for its last record.
#pragma once

#include <memory>
#include <vector>

#include "zeno/comm/cuda/communicators.h"
#include "zeno/comm/cuda/handles.h"
#include "zeno/comm/rendezvous.h"
#include "zeno/comm/slices.h"

namespace zeno::comm {

class CudaThreadGroup final : public Rendezvous {
 public:
  // Collective.
  CudaThreadGroup(GroupParts parts, Device device, const Exchange& exchange);
  ~CudaThreadGroup();

  // Queues the operation on the stream; returns when all ranks have done so.
  void run(StreamRef stream, Op op);

 private:
  // The events that a rank shows to its peers, on its own device.
  struct Peer {
    int device = 0;
    CudaEvent ready, summed, done;
  };
  // The rendezvous in progress.
  struct Round {
    const Op& op;
    std::span<const Part> parts;
    std::span<const ExchangeSlices> exchanges;  // all_to_all: one for each part
    cudaStream_t stream;
  };

  void meet_peers(const Exchange& exchange);
  uint64_t next_number(const OpRecord& record);
  void run_collective(const Op& op, cudaStream_t stream, OpWait& wait);
  void run_send(const Op& op, cudaStream_t stream, OpWait& wait);
  void run_recv(const Op& op, cudaStream_t stream, OpWait& wait);
  void leave(cudaStream_t stream) noexcept;

  void move(const Round& round, OpWait& wait);
  void gather(const Round& round, const Part& part, int p);
  void broadcast(const Round& round, const Part& part, int p);
  void all_to_all(const Round& round, const Part& part, int p);
  void sum_slice(const Round& round, const Part& part, int p);
  void collect_slices(const Round& round, const Part& part, int p);

  Slices slices_of(const Round& round, const Part& part) const;
  const std::byte* sent_by(int rank, int part) const;
  void copy(const Round& round, std::byte* to, const std::byte* from, int64_t elements) const;
  void signal(CudaEvent Peer::*event, cudaStream_t stream);
  void await(CudaEvent Peer::*event, cudaStream_t stream) const;
  std::byte* staging();

  int rank() const { return layout().rank; }
  int size() const { return layout().size; }
  // Counts through the other ranks. Each rank begins with its neighbour, so that not all read the same one at
  // once.
  int other(int distance) const { return (rank() + distance) % size(); }

  Device device_;
  // Shared between the ranks: a peer may still have to wait for an event after its owner is gone.
  std::vector<std::shared_ptr<Peer>> peers_;
  std::vector<bool> readable_;  // kernels of this device can read that rank's memory
  uint64_t collectives_ = 0;
  std::vector<uint64_t> sends_, recvs_;  // by the other rank
  Block staging_;                        // slices of ranks that cannot be read directly
  CudaEvent staging_free_;
};

}  // namespace zeno::comm
