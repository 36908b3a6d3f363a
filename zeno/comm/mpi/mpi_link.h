// Messages between hosts over MPI, and MPI's own sums. Non-blocking throughout: no call waits for a peer.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "zeno/comm/failure.h"
#include "zeno/comm/peers.h"

namespace zeno::comm {

// Throws Error(peer) with MPI's error text unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* what);

// A duplicate of `comm`, so that our messages do not mix with those of others. Collective; waits for all
// ranks under `wait`. MPI frees it in MPI_Finalize, because freeing it earlier would be one more collective
// call.
MPI_Comm duplicate(MPI_Comm comm, OpWait& wait);
// A communicator of only `ranks` of `comm`, for MPI's own collectives. Collective over these ranks.
MPI_Comm make_group(MPI_Comm comm, const std::vector<int>& ranks, OpWait& wait);

class MpiLink final : public RemoteLink {
 public:
  // `ranks` of `comm` are the places of the group. `sums` has exactly these ranks, or is null when MPI does
  // not sum.
  MpiLink(MPI_Comm comm, MPI_Comm sums, std::vector<int> ranks)
      : comm_(comm), sums_(sums), ranks_(std::move(ranks)) {}
  std::unique_ptr<MessageBatch> batch(Channel channel) override;
  std::unique_ptr<RemoteWork> sum(const RemoteSum& sum) override;
  int64_t bytes_sent() const override { return sent_.load(); }

 private:
  MPI_Comm comm_, sums_;
  std::vector<int> ranks_;
  std::atomic<int64_t> sent_{0};
};

}  // namespace zeno::comm
