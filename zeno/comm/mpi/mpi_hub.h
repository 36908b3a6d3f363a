// What all communicators of a process of an MPI world share: which rank is where, the failure note of the
// ranks of its host, the watch over local processes, failure messages between hosts, and the exchange of
// small values. Thread rule: poll() and report() from any thread, the rest from one.
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
  // A unique name of this job, the same on all ranks.
  const std::string& job() const { return job_; }
  // Index of a rank among those of this host.
  int local_index(int rank) const;
  // Whether the process of a rank of this host has ended.
  bool has_ended(int rank) const { return processes_.has_ended(rank); }
  // Memory that `ranks` of this host share, as long as memory() lives. The first of them makes it and runs
  // `fill` before the others see it. Collective over all ranks; `ranks` may differ between them.
  std::byte* share(const std::vector<int>& ranks, size_t bytes, const std::function<void(std::byte*)>& fill);
  // Messages between the ranks of a group; null when all are on this host. Collective over all ranks of the
  // world.
  std::shared_ptr<RemoteLink> link(const Layout& group, Reduction reduction);
  // The host of each rank, as a name that is equal for ranks that can share memory.
  const std::vector<std::string>& hosts() const { return hosts_; }

  // Called last by a process whose job has failed, after it has printed why. Gives the other ranks of this
  // host, which are failing too, a moment to print theirs: launchers kill all processes as soon as one has
  // ended.
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
  FailureNote early_note_;  // until the control block exists
  Control* control_ = nullptr;
  const MessageBatch* open_batch_ = nullptr;
  std::mutex poll_mutex_;
  std::chrono::steady_clock::time_point next_look_{};
};

}  // namespace zeno::comm
