// What a backend gives to the communicators: which rank is where, how to reach the memory of local peers, and
// how to send messages to other hosts. Threads, processes of one host and processes of several hosts differ
// only in these.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/comm/board.h"
#include "zeno/comm/communicator.h"
#include "zeno/comm/failure.h"
#include "zeno/comm/flight/flight_file.h"

namespace zeno::comm {

class World;

// A group of ranks as one of them sees it. Within the group, ranks are numbered by their place in it; `ranks`
// has their ranks in the world, which messages to users name.
struct Layout {
  int rank = 0;
  int size = 1;
  std::vector<int> ranks;   // of the world, by place, ascending
  std::vector<int> local;   // places on this host, ascending, this one included
  std::vector<int> remote;  // the others, ascending
  int local_index = 0;      // of this rank in `local`

  int world_rank() const { return ranks[size_t(rank)]; }
  std::vector<int> world_ranks(const std::vector<int>& places) const;
};
// `ranks` is the group, `rank` one of its members, both by rank in the world; `hosts[r]` names the host of
// rank r.
Layout make_layout(int rank, std::span<const int> ranks, const std::vector<std::string>& hosts);

// Memory of the ranks of this host. Thread rule: any thread may call.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;
  // The address of `data` for local peers; not shared when they cannot reach it.
  virtual Address publish(const std::byte* data) = 0;
  // Where this rank can read what rank `local_index` published; shared addresses only.
  virtual const std::byte* resolve(int local_index, const Address& address) = 0;
  // How long a failing rank waits for peers that may be reading its memory.
  virtual std::chrono::milliseconds patience() const = 0;
};

// Communication between hosts that is in progress.
class RemoteWork {
 public:
  virtual ~RemoteWork() = default;
  // Whether all of it is done.
  virtual bool test() = 0;
  // Ranks of the world whose messages are still open, as far as known.
  virtual std::vector<int> open() const = 0;
};

// Messages of one operation to and from places of the group on other hosts. Posted receives and sends run
// concurrently; buffers must stay valid until test() returns true. Destroying the batch earlier cancels open
// messages.
class MessageBatch : public RemoteWork {
 public:
  virtual void receive(int from, std::byte* data, size_t bytes) = 0;
  virtual void send(int to, const std::byte* data, size_t bytes) = 0;
};

// A sum of fp32 values over all ranks of the group, in place.
struct RemoteSum {
  // Shared, because MPI cannot cancel a sum and goes on using the memory of one that was abandoned.
  std::shared_ptr<std::byte[]> values;
  int64_t count = 0;
  bool scatter = false;  // a reduce-scatter of equal slices: this rank's ends up at the beginning
  int64_t counted = 0;   // bytes to add to bytes_sent(): MPI does not report what it sends
};

enum class Channel { records, data, point_to_point };

class RemoteLink {
 public:
  virtual ~RemoteLink() = default;
  virtual std::unique_ptr<MessageBatch> batch(Channel channel) = 0;
  // Begins a sum by MPI. Only for links that were made for Reduction::native; one sum at a time.
  virtual std::unique_ptr<RemoteWork> sum(const RemoteSum& sum) = 0;
  // Bytes of data in the messages sent so far. Any thread may call.
  virtual int64_t bytes_sent() const = 0;
};

struct GroupParts {
  std::string name;
  Layout layout;
  Reduction reduction = Reduction::tree;
  std::byte* board_memory = nullptr;
  size_t staging_bytes = 0;
  size_t device_staging_bytes = 0;
  std::chrono::milliseconds deadline{};
  // Shared, so that queued operations keep what they need alive when an exception unwinds their owner.
  std::shared_ptr<void> board_owner;
  std::shared_ptr<PeerWatch> watch;
  std::shared_ptr<PeerMemory> memory;
  std::shared_ptr<FlightRecorder> recorder;
  std::shared_ptr<FlightFile> flight;
  std::shared_ptr<RemoteLink> link;  // null when all ranks are local
};

std::unique_ptr<Communicator> make_group_communicator(GroupParts parts);

// Picks the values of `ranks` from those of all ranks.
std::vector<std::string> values_of(std::span<const int> ranks, std::vector<std::string> all);

// The name of a new communicator over `ranks` in errors: "reduce", or "reduce (ranks 0-3)" when that is not
// the whole world. Throws on every rank when the ranks do not make the same communicator, or groups overlap.
// Collective.
std::string agree_on_communicator(World& world, std::string_view name, Device device,
                                  std::span<const int> ranks, Reduction reduction);

}  // namespace zeno::comm
