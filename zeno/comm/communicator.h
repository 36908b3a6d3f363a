// Collectives between the ranks of a world, on bytes + dtype + stream. Knows nothing of tensors of a model.
//
// Every call is async: it is queued on `stream` and done when the stream has passed it. Buffers must stay
// valid and untouched until then. All ranks must issue the same calls in the same order on a communicator;
// calls on different communicators are independent (one for gathers, one for reduces, so that neither queues
// behind the other). Each call carries a batch of parts, executed as one operation with one rendezvous, and
// the name of the unit it serves, which appears in errors, the flight recorder and the trace. Parts with
// count 0 are allowed.
//
// Sums are taken in fp32 over ranks in a balanced binary tree: ranks [0, n) split at the largest power of two
// below n, recursively. The result depends only on the values and the world size. With Reduction::native,
// NCCL or MPI sums where it carries the data.
//
// A wrong call (null, misaligned or wrongly overlapping buffers) throws Error(usage) at the caller at once. A
// call that exceeds the deadline, meets a rank that failed, or finds that the ranks issued different calls
// throws Error(peer) on the stream, naming the rank, the operation and the unit; so does every later call on
// the world.
//
// On CUDA streams the data moves in the order of the stream as well, but the calling host threads meet inside
// the call: it returns when all ranks have made it. So all ranks issue their calls in the same order over all
// communicators of the world, from one thread per rank. The call itself throws Error(peer); failures that
// happen later, on the device, are thrown by poll() and by every later call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "zeno/base/dtype.h"
#include "zeno/device/stream.h"

namespace zeno::comm {

// Who sums over ranks. tree: Zeno, in the balanced tree. native: NCCL, or MPI in groups that span hosts, so
// that switches that can sum are used. Then the library decides the order of additions, and with it the bits.
// NCCL adds in the dtype of the call and rounds at each addition; MPI takes fp32 only. Every rank still gets
// the same sum. Ranks that read each other's memory (threads, and CPU ranks of one host) keep the tree.
enum class Reduction { tree, native };

struct Part {
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;
  int64_t count = 0;  // elements; each call says of what
};

// A part of an all_to_all with a count for each rank of the communicator: `send` holds the slices for ranks
// 0, 1, …, one after the other, and `recv` gets those from ranks 0, 1, … in the same way. The call copies the
// counts.
struct ExchangePart {
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;
  std::span<const int64_t> send_counts, recv_counts;
};

// What a communicator has moved so far, in bytes this rank sent to others (equal to what it received), as
// cost.h counts them. Native sums count as what the tree would have sent, because NCCL and MPI do not report
// what they send.
struct Traffic {
  int64_t gathered = 0;   // all_gather, broadcast (a rank other than the root: what it received)
  int64_t reduced = 0;    // reduce_scatter, all_reduce
  int64_t exchanged = 0;  // all_to_all (unequal counts: the larger of sent and received), send
  int64_t calls = 0;
  int64_t between_hosts = 0;  // part of the above: sent in messages to other hosts; CPU streams only

  Traffic& operator+=(const Traffic& other) {
    gathered += other.gathered;
    reduced += other.reduced;
    exchanged += other.exchanged;
    calls += other.calls;
    between_hosts += other.between_hosts;
    return *this;
  }
  Traffic operator-(const Traffic& before) const {
    return {gathered - before.gathered, reduced - before.reduced, exchanged - before.exchanged,
            calls - before.calls, between_hosts - before.between_hosts};
  }
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // recv holds size()·count elements; rank r's count elements land at recv + r·count.
  // In place when send == recv + rank·count.
  virtual void all_gather(StreamRef stream, std::span<const Part> parts, DType dtype,
                          std::string_view unit) = 0;

  // send holds size()·count elements; recv (count elements of recv_dtype) gets the sum of slice rank() of all
  // ranks. accumulate: recv += sum instead. In place when recv == send + rank·count and the dtypes are equal.
  virtual void reduce_scatter(StreamRef stream, std::span<const Part> parts, DType dtype, DType recv_dtype,
                              bool accumulate, std::string_view unit) = 0;

  // send and recv hold count elements each; every rank gets the same sum, bit for bit. In place when send ==
  // recv.
  virtual void all_reduce(StreamRef stream, std::span<const Part> parts, DType dtype,
                          std::string_view unit) = 0;

  // count elements of root's `send` land in every rank's `recv` (root's too). In place when send == recv on
  // root.
  virtual void broadcast(StreamRef stream, std::span<const Part> parts, DType dtype, int root,
                         std::string_view unit) = 0;

  // send and recv hold size()·count elements: slice p of send goes to rank p, slice p of recv came from p.
  // Never in place.
  virtual void all_to_all(StreamRef stream, std::span<const Part> parts, DType dtype,
                          std::string_view unit) = 0;
  // The same with unequal counts. What rank a sends to rank b must be what b expects from a: the two ranks
  // compare the counts before data moves, and a difference is an Error(peer).
  virtual void all_to_all(StreamRef stream, std::span<const ExchangePart> parts, DType dtype,
                          std::string_view unit) = 0;

  // Point to point; matched in order per (sender, receiver) pair, independent of collectives. A send may wait
  // for its receive (small messages on CPU streams do not), so ranks that send to each other use two CPU
  // streams, or one of them receives first.
  virtual void send(StreamRef stream, const std::byte* data, int64_t count, DType dtype, int to,
                    std::string_view unit) = 0;
  virtual void recv(StreamRef stream, std::byte* data, int64_t count, DType dtype, int from,
                    std::string_view unit) = 0;

  virtual void barrier(StreamRef stream, std::string_view unit) = 0;

  virtual Traffic traffic() const = 0;

  // Throws Error(peer) when an operation has failed or exceeded the deadline on its device. CPU streams carry
  // such errors themselves. On CUDA a failed operation ends early and the stream goes on, so callers that
  // wait for the stream must poll before they use what was received. Any thread may call.
  virtual void poll() {}
};

}  // namespace zeno::comm
