// Ranks as processes started by mpirun or srun.
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "zeno/base/disk_operation.h"
#include "zeno/base/error.h"
#include "zeno/base/leave.h"
#include "zeno/base/math.h"
#include "zeno/base/watch.h"
#include "zeno/comm/cuda/communicators.h"
#include "zeno/comm/mpi/mpi_hub.h"
#include "zeno/comm/mpi/mpi_start.h"

namespace zeno::comm {
namespace {

// Lingers only when the process ends; until then it may print what failed.
void linger_at_exit(std::shared_ptr<MpiHub> hub) {
  static std::shared_ptr<MpiHub> leaving;
  leaving = std::move(hub);
  const auto linger = [] { leaving->linger(); };
  std::atexit(linger);
  std::at_quick_exit(linger);
}

// The file operation that this rank is stuck in: one that has taken longer than the disk deadline, or, once
// the world has failed, than the deadline of a collective if that is shorter.
std::optional<DiskStall> disk_stall(MpiHub& hub) {
  const WorldOptions& options = hub.options();
  std::optional<DiskStall> stall = find_disk_stall(options.disk_deadline);
  if (stall) return stall;
  stall = find_disk_stall(std::min(options.deadline, options.disk_deadline));
  try {
    return stall && hub.poll() ? stall : std::nullopt;
  } catch (...) {  // errors of MPI do not matter: the world has failed
    return stall;
  }
}

// Ends the process in place of this rank's thread, which is stuck.
void leave_stuck(const std::shared_ptr<MpiHub>& hub, const DiskStall& stall) {
  hub->report(hub->layout().rank, stall.text());
  linger_at_exit(hub);
  leave(exit_code(ErrorKind::io), stall.text());
}

// The memory of those ranks of this host that are in a group.
class GroupMemory final : public PeerMemory {
 public:
  GroupMemory(const MpiHub& hub, const std::vector<int>& ranks) : memory_(hub.memory()) {
    for (const int rank : ranks) local_indices_.push_back(hub.local_index(rank));
  }
  Address publish(const std::byte* data) override { return memory_->publish(data); }
  const std::byte* resolve(int local_index, const Address& address) override {
    return memory_->resolve(local_indices_[size_t(local_index)], address);
  }
  std::chrono::milliseconds patience() const override { return memory_->patience(); }

 private:
  std::shared_ptr<ProcessMemory> memory_;
  std::vector<int> local_indices_;  // among all ranks of the host
};

class MpiWorld final : public World {
 public:
  explicit MpiWorld(const WorldOptions& options)
      : hub_(std::make_shared<MpiHub>(options)),
        flight_(std::make_shared<FlightFile>(
            FlightFile::Place{options.flight_folder, hub_->job(), hub_->layout().rank, hub_->layout().size},
            std::make_shared<FlightRecorder>(options.flight_records))) {
    watch_.emplace([hub = hub_] {
      const std::optional<DiskStall> stall = disk_stall(*hub);
      if (stall) leave_stuck(hub, *stall);
      return false;
    });
  }

  // Without finish() the job has failed, here or elsewhere; the others must know before this process ends.
  ~MpiWorld() override {
    watch_.reset();
    if (finished_) return;
    hub_->report(rank(), "it left before the job was done");
    flight_->finish([hub = hub_](int rank) { return hub->has_ended(rank); });
    linger_at_exit(hub_);
  }

  int rank() const override { return hub_->layout().rank; }
  int size() const override { return hub_->layout().size; }
  int local_rank() const override { return hub_->layout().local_index; }
  int local_size() const override { return int(hub_->layout().local.size()); }
  int ranks_per_host() const override {
    const std::vector<std::string>& hosts = hub_->hosts();
    const auto count = size_t(std::ranges::count(hosts, hosts.front()));
    for (size_t r = 0; r < hosts.size(); ++r) {
      if (hosts[r] != hosts[r / count * count] || (r >= count && r % count == 0 && hosts[r] == hosts[r - 1]))
        return 0;
    }
    return hosts.size() % count == 0 ? int(count) : 0;
  }

  using World::communicator;
  std::unique_ptr<Communicator> communicator(std::string_view name, Device device, std::span<const int> ranks,
                                             Reduction reduction) override {
    GroupParts parts;
    parts.name = agree_on_communicator(*this, name, device, ranks, reduction);
    parts.layout = make_layout(rank(), ranks, hub_->hosts());
    const Layout& layout = parts.layout;
    const std::vector<int> neighbours = layout.world_ranks(layout.local);
    // Room for at least a cache line per rank, so that chunks never become empty.
    parts.staging_bytes =
        round_up(std::max(hub_->options().staging_bytes, size_t(layout.size) * 256), size_t(4096));
    const int local = int(neighbours.size());
    parts.board_memory = hub_->share(neighbours, Board::bytes(local, parts.staging_bytes),
                                     [&](std::byte* memory) { Board::construct(memory, local); });
    parts.deadline = hub_->options().deadline;
    parts.board_owner = hub_->memory();
    parts.watch = hub_;
    parts.memory = std::make_shared<GroupMemory>(*hub_, neighbours);
    parts.recorder = flight_->recorder();
    parts.flight = flight_;
    parts.reduction = reduction;
    const bool on_cpu = device.kind == Device::Kind::cpu;  // otherwise NCCL sums
    parts.link = hub_->link(layout, on_cpu ? reduction : Reduction::tree);
    if (on_cpu) return make_group_communicator(std::move(parts));
    parts.device_staging_bytes = hub_->options().device_staging_bytes;
    return cuda_communicator(std::move(parts), device);
  }

  Allocator allocator(Device device) override {
    if (device.kind == Device::Kind::cpu) {
      return [memory = hub_->memory()](size_t bytes) { return memory->allocate(bytes); };
    }
    return size() == 1 ? allocator_of(device) : nccl_allocator(nccl_memory(), device);
  }
  void fail(std::string_view reason) noexcept override { hub_->report(rank(), reason); }
  void record_failure(std::string_view error) noexcept override {
    if (!flight_->wanted()) return;
    std::optional<Failure> failure;
    try {
      failure = hub_->poll();
    } catch (...) {  // errors of MPI do not matter; the first one is already known
    }
    flight_->tell(error, failure);
  }
  std::string flight_records() const override { return flight_->recorder()->dump(); }

  void finish() override {
    exchange("finish", "the end of the job");
    watch_.reset();  // it may call MPI
    check_mpi(MPI_Finalize(), "end");
    finished_ = true;
  }

 private:
  // NCCL connects the members of all groups with one exchange over all ranks of the world.
  std::unique_ptr<Communicator> cuda_communicator(GroupParts parts, Device device) {
    if (parts.layout.size > 1) {
      const Exchange among_members = [this, members = parts.layout.ranks](std::string_view bytes) {
        return values_of(members, hub_->exchange(bytes));
      };
      return make_nccl_communicator(std::move(parts), device, among_members, nccl_memory());
    }
    hub_->exchange("");
    return make_cuda_thread_communicator(std::move(parts), device, [](std::string_view bytes) {
      return std::vector<std::string>{std::string(bytes)};
    });
  }

  std::vector<std::string> exchange_values(std::string_view bytes, std::string_view what) override {
    const RecordedExchange record(*flight_->recorder(), ++exchanges_, what);
    std::vector<std::string> values = hub_->exchange(bytes, record.text());
    record.done();
    return values;
  }

  const std::shared_ptr<NcclMemory>& nccl_memory() {
    if (nccl_memory_ == nullptr) nccl_memory_ = make_nccl_memory();
    return nccl_memory_;
  }

  std::shared_ptr<MpiHub> hub_;  // shared with queued operations
  std::shared_ptr<FlightFile> flight_;
  uint64_t exchanges_ = 0;
  std::shared_ptr<NcclMemory> nccl_memory_;  // shared with its blocks and the communicators
  bool finished_ = false;
  std::optional<Watch> watch_;
};

}  // namespace

bool mpi_available() { return true; }

std::unique_ptr<World> make_mpi_world(const WorldOptions& options) {
  start_mpi(std::max(options.deadline, options.start_deadline));
  return std::make_unique<MpiWorld>(options);
}

}  // namespace zeno::comm
