// Ranks as processes, on CUDA streams: one rank's view of a communicator. The hosts agree on every operation
// on the board, as they do for CPU streams; then NCCL moves the bytes. Sums are ours: slices travel to their
// owner's staging memory and are added there in the tree of communicator.h. With Reduction::native NCCL sums,
// from buffer to buffer; sums that are accumulated, or change their dtype, go through staging.
//
// A watchdog thread follows the operations on the device. When one exceeds the deadline, NCCL reports an
// error, or a rank has failed, it aborts NCCL, which ends the kernels, and keeps the error for poll().
#pragma once

#include <array>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "zeno/comm/cuda/communicators.h"
#include "zeno/comm/cuda/device_ops.h"
#include "zeno/comm/cuda/nccl_comm.h"
#include "zeno/comm/rendezvous.h"
#include "zeno/comm/slices.h"

namespace zeno::comm {

inline constexpr size_t kSlotAlign = 256;  // bytes; slots of staging begin at vectors of the sum kernel

class NcclGroup final : public Rendezvous {
 public:
  // Collective.
  NcclGroup(GroupParts parts, Device device, const Exchange& exchange, std::shared_ptr<NcclMemory> memory);
  ~NcclGroup();

  // Queues the operation on the stream; returns when all ranks of this host have done so.
  void run(StreamRef stream, Op op);
  void poll();

 private:
  friend class NcclMover;

  struct Start {
    ncclUniqueId id;
    uint64_t staging_bytes = 0;  // rank 0's: all ranks must cut the same way
  };
  void connect(const Exchange& exchange);
  uint64_t next_number(const OpRecord& record);
  void run_collective(const Op& op, cudaStream_t stream, OpWait& wait);
  // One rendezvous; for an all_to_all, one for every Board::kMostParts parts.
  void agree_on_all(const Op& op, OpWait& wait);
  void run_message(const Op& op, cudaStream_t stream, OpWait& wait);
  void announce(const Op& op, OpWait& wait);
  void expect(const Op& op, OpWait& wait);
  // Runs `launch`, which queues the device's part of the operation, and has the watchdog follow it.
  template <class Launch>
  void follow(const Op& op, cudaStream_t stream, const Launch& launch);

  void watch(std::stop_token stop);
  void look();
  std::byte* staging();

  Device device_;
  std::shared_ptr<NcclMemory> memory_;  // shared with the world and its blocks
  std::unique_ptr<NcclComm> comm_;
  Block token_;  // a byte per rank, for barriers
  uint64_t collectives_ = 0;
  std::vector<uint64_t> sends_, recvs_;  // by the other rank
  const int exceptions_ = std::uncaught_exceptions();

  // For reductions: two halves of staging, and a stream that fills one while the other is summed.
  size_t half_bytes_ = 0;
  Block staging_;
  CudaStreamHandle wire_;
  CudaEvent issued_, arrived_, finished_;
  std::array<CudaEvent, 2> summed_;
  cudaStream_t last_sums_ = nullptr;  // the stream of the last reduction

  std::mutex state_mutex_;
  std::condition_variable_any wake_;
  DeviceOps ops_;
  std::exception_ptr error_;
  std::jthread watchdog_;  // last, so that all it uses exists when it starts
};

// The device's part of one collective.
class NcclMover {
 public:
  NcclMover(NcclGroup& group, const Op& op, cudaStream_t stream, OpWait& wait);
  void run();

 private:
  // Elements [a, b) of the slices of a part, which are sent in one round.
  struct Piece {
    const Part* part = nullptr;
    Slices slices;
    int64_t a = 0, b = 0;
    size_t at = 0, slot = 0;  // bytes: where its slots begin in a half of staging, and their size
    int round = 0;
  };

  void gather();
  void broadcast();
  void all_to_all();
  void barrier();
  void reduce();
  // Sums by NCCL, of whole parts at once.
  void reduce_directly();

  bool native() const { return group_.parts_.reduction == Reduction::native; }
  // Slots of a piece: one for each rank, or for each other rank.
  int slots() const { return native() ? size_ : size_ - 1; }
  std::vector<Piece> plan() const;
  void trade(std::span<const Piece> pieces, std::byte* half, cudaStream_t stream);
  void sum_in_place(std::span<const Piece> pieces, std::byte* half, cudaStream_t stream);
  void sum(std::span<const Piece> pieces, const std::byte* half);
  void spread(std::span<const Piece> pieces, cudaStream_t stream);
  size_t bytes_of(int64_t elements) const { return size_t(elements) * size_t(width_); }
  const std::byte* slot(const Piece& piece, const std::byte* half, int rank) const;
  std::vector<const std::byte*> summands(const Piece& piece, const std::byte* half) const;

  NcclGroup& group_;
  const Op& op_;
  cudaStream_t stream_;
  OpWait& wait_;
  const int rank_, size_;
  const int64_t width_;  // bytes of an element
};

}  // namespace zeno::comm
