// What a process of an MPI world knows and does for all its communicators: who is where, the failure note
// shared with the ranks of its host, deaths of local processes, failure messages between hosts, and the
// exchange of small values. Thread rule: poll() and report() from any thread, the rest from one.
#pragma once

#include <mpi.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/comm/mpi/mpi_link.h"
#include "zeno/comm/process_memory.h"
#include "zeno/comm/process_watch.h"
#include "zeno/comm/world.h"

namespace zeno::comm {

class MpiHub final : public PeerWatch {
 public:
  // Collective. MPI is initialised.
  explicit MpiHub(const WorldOptions& options);

  const Layout& layout() const { return layout_; }
  const WorldOptions& options() const { return options_; }
  const std::shared_ptr<ProcessMemory>& memory() const { return memory_; }

  std::optional<Failure> poll() override;
  void report(int rank, std::string_view reason) noexcept override;

  std::vector<std::string> exchange(std::string_view bytes,
                                    std::string_view what = "an exchange at start-up");
  // A name that all ranks of this job know, and no other job has.
  const std::string& job() const { return job_; }
  // Index of a rank among those of this host.
  int local_index(int rank) const;
  // Has the process of a rank of this host ended?
  bool has_ended(int rank) const { return processes_.has_ended(rank); }
  // Memory that `ranks` of this host see, as long as memory() lives: the first of them makes it. Collective
  // over all ranks, with the sharers that each has; `fill` runs before the others look.
  std::byte* share(const std::vector<int>& ranks, size_t bytes, const std::function<void(std::byte*)>& fill);
  // Between the ranks of a group; null when all are on this host. Collective over all ranks of the world.
  std::shared_ptr<RemoteLink> link(const Layout& group, Reduction reduction);
  // Host of each rank, by a name that is equal for those that share memory.
  const std::vector<std::string>& hosts() const { return hosts_; }

  // Last thing of a process whose job has failed: it has said why, and gives the other ranks of this host,
  // which are failing too, a moment to speak: launchers kill everybody as soon as one process has gone.
  void linger() noexcept;

 private:
  struct Control {
    FailureNote note;
    std::atomic<uint32_t> leaving{0};
  };

  OpWait patience(std::string_view what);
  void find_hosts();
  void share_control();
  void receive_news();
  void send_news(const Failure& failure) noexcept;

  const WorldOptions options_;
  MPI_Comm comm_ = MPI_COMM_NULL;  // exchange and failure messages
  int rank_ = 0, size_ = 1;
  Layout layout_;  // of the whole world
  std::vector<std::string> hosts_;
  std::vector<int> everyone_;
  std::shared_ptr<ProcessMemory> memory_;
  std::string job_;
  ProcessWatch processes_;
  FailureNote early_note_;  // until the control block is there
  Control* control_ = nullptr;
  const MessageBatch* open_batch_ = nullptr;
  std::mutex poll_mutex_;
  std::chrono::steady_clock::time_point next_look_{};
};

}  // namespace zeno::comm
