// Ranks as threads of one process; a world of one is one such thread, the caller's.
#include <algorithm>
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <mutex>

#include "zeno/base/disk_operation.h"
#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/base/thread.h"
#include "zeno/base/within.h"
#include "zeno/comm/cuda/communicators.h"
#include "zeno/comm/peers.h"
#include "zeno/comm/shared_region.h"
#include "zeno/comm/world.h"

namespace zeno::comm {
namespace {

// Threads share one address space, so every buffer can be read in place.
class ThreadMemory final : public PeerMemory {
 public:
  Address publish(const std::byte* data) override {
    return {
        .shared = true, .block = 0, .block_bytes = 0, .offset = uint64_t(reinterpret_cast<uintptr_t>(data))};
  }
  const std::byte* resolve(int, const Address& address) override {
    return reinterpret_cast<const std::byte*>(uintptr_t(address.offset));
  }
  // Practically forever: a peer that reads freed memory would crash the whole process.
  std::chrono::milliseconds patience() const override { return std::chrono::hours(24); }
};

// What the threads share: the failure, the boards in the order they were made, and the values of exchange().
class ThreadHub final : public PeerWatch {
 public:
  ThreadHub(int ranks, const WorldOptions& options)
      : ranks_(ranks), options_(options), values_(size_t(ranks)) {
    const std::string job = new_job_name();
    for (int r = 0; r < ranks; ++r) {
      flights_.push_back(
          std::make_shared<FlightFile>(FlightFile::Place{options.flight_folder, job, r, ranks},
                                       std::make_shared<FlightRecorder>(options.flight_records)));
    }
  }

  std::optional<Failure> poll() override { return note_.get(); }
  void report(int rank, std::string_view reason) noexcept override { note_.set(rank, reason); }

  int ranks() const { return ranks_; }
  const WorldOptions& options() const { return options_; }
  const std::shared_ptr<FlightFile>& flight(int rank) const { return flights_[size_t(rank)]; }

  // The board of a group of the `index`-th communicator; the first rank that asks for it makes it.
  std::byte* board(size_t index, std::span<const int> ranks) {
    const std::scoped_lock lock(mutex_);
    const auto [place, made] = boards_.try_emplace({index, ranks.front()});
    if (made) {
      place->second = SharedRegion::anonymous(Board::bytes(int(ranks.size()), 0));
      Board::construct(place->second.data(), int(ranks.size()));
    }
    return place->second.data();
  }

  std::vector<std::string> exchange(int rank, std::string_view bytes, const std::string& operation) {
    OpWait wait(*this, options_.deadline, {[&] { return operation; }, [&] { return missing(); }});
    std::unique_lock lock(mutex_);
    values_[size_t(rank)] = std::string(bytes);
    const uint64_t round = round_;
    if (++arrived_ == ranks_) {
      for (std::optional<std::string>& value : values_) result_.push_back(std::move(*value));
      std::fill(values_.begin(), values_.end(), std::nullopt);
      arrived_ = 0;
      ++round_;
      all_here_.notify_all();
    }
    while (round_ == round) {
      all_here_.wait_for(lock, std::chrono::milliseconds(10));
      if (round_ != round) break;
      lock.unlock();
      wait.check();
      lock.lock();
    }
    std::vector<std::string> all = result_;
    if (++taken_ == ranks_) {
      taken_ = 0;
      result_.clear();
    }
    return all;
  }

 private:
  std::string missing() {
    const std::scoped_lock lock(mutex_);
    std::vector<int> ranks;
    for (int r = 0; r < ranks_; ++r) {
      if (!values_[size_t(r)]) ranks.push_back(r);
    }
    return ranks.empty() ? "all have arrived" : "nothing received from " + list_ranks(ranks);
  }

  const int ranks_;
  const WorldOptions options_;
  std::vector<std::shared_ptr<FlightFile>> flights_;  // by rank
  FailureNote note_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  std::map<std::pair<size_t, int>, SharedRegion> boards_;  // by communicator and first rank of the group
  std::vector<std::optional<std::string>> values_;
  std::vector<std::string> result_;
  int arrived_ = 0, taken_ = 0;
  uint64_t round_ = 0;
};

class ThreadWorld final : public World {
 public:
  ThreadWorld(std::shared_ptr<ThreadHub> hub, int rank)
      : hub_(std::move(hub)), rank_(rank), flight_(hub_->flight(rank)) {}

  int rank() const override { return rank_; }
  int size() const override { return hub_->ranks(); }
  int local_rank() const override { return rank_; }
  int local_size() const override { return hub_->ranks(); }
  int ranks_per_host() const override { return hub_->ranks(); }

  using World::communicator;
  std::unique_ptr<Communicator> communicator(std::string_view name, Device device, std::span<const int> ranks,
                                             Reduction reduction) override {
    GroupParts parts;
    parts.name = agree_on_communicator(*this, name, device, ranks, reduction);
    parts.layout = make_layout(rank_, ranks, std::vector<std::string>(size_t(size()), "here"));
    parts.board_memory = hub_->board(communicators_++, ranks);
    parts.deadline = hub_->options().deadline;
    parts.board_owner = hub_;
    parts.watch = hub_;
    parts.memory = std::make_shared<ThreadMemory>();
    parts.recorder = flight_->recorder();
    parts.flight = flight_;
    if (device.kind == Device::Kind::cpu) return make_group_communicator(std::move(parts));
    parts.device_staging_bytes = hub_->options().device_staging_bytes;
    const Exchange among_members = [this, members = parts.layout.ranks](std::string_view bytes) {
      return values_of(members, exchange(bytes));
    };
    return make_cuda_thread_communicator(std::move(parts), device, among_members);
  }

  Allocator allocator(Device device) override { return allocator_of(device); }
  void fail(std::string_view reason) noexcept override { hub_->report(rank_, reason); }
  void record_failure(std::string_view error) noexcept override {
    if (flight_->wanted()) flight_->tell(error, hub_->poll());
  }
  std::string flight_records() const override { return flight_->recorder()->dump(); }
  void finish() override { exchange("finish", "the end of the job"); }

 private:
  std::vector<std::string> exchange_values(std::string_view bytes, std::string_view what) override {
    const RecordedExchange record(*flight_->recorder(), ++exchanges_, what);
    std::vector<std::string> values = hub_->exchange(rank_, bytes, record.text());
    record.done();
    return values;
  }

  std::shared_ptr<ThreadHub> hub_;  // shared with queued operations and the other ranks
  int rank_;
  std::shared_ptr<FlightFile> flight_;
  size_t communicators_ = 0;
  uint64_t exchanges_ = 0;
};

// The errors of the ranks in the order they occurred.
class ErrorList {
 public:
  void add(int rank, std::exception_ptr error) {
    const std::scoped_lock lock(mutex_);
    errors_.push_back({rank, std::move(error)});
  }
  // Prefers the error of the rank that failed first, then any error that is not only a report of a failed
  // peer.
  void rethrow_original(const std::optional<Failure>& failure) const {
    const std::scoped_lock lock(mutex_);  // a rank that was left behind may still add its own
    if (errors_.empty()) return;
    for (const Entry& entry : errors_) {
      const bool first = failure && entry.rank == failure->rank;
      if (first && ending_of(entry.error).tells) std::rethrow_exception(entry.error);
    }
    for (const Entry& entry : errors_) {
      const Ending ending = ending_of(entry.error);
      if (ending.kind != ErrorKind::peer && ending.tells) std::rethrow_exception(entry.error);
    }
    std::rethrow_exception(errors_.front().error);
  }

 private:
  struct Entry {
    int rank;
    std::exception_ptr error;
  };
  mutable std::mutex mutex_;
  std::vector<Entry> errors_;
};

// The ranks of a run and which of them have returned. Shared with their threads, because a stuck thread is
// left behind.
class ThreadRun : public std::enable_shared_from_this<ThreadRun> {
 public:
  ThreadRun(int ranks, const WorldOptions& options, std::function<void(World&)> body)
      : hub_(std::make_shared<ThreadHub>(ranks, options)), body_(std::move(body)), back_(size_t(ranks)) {}

  void run() {
    std::vector<std::thread> threads;
    try {
      for (int rank = 0; rank < hub_->ranks(); ++rank)
        threads.push_back(start_thread([self = shared_from_this(), rank] { self->run_rank(rank); }));
    } catch (...) {
      fail_from(int(threads.size()), std::current_exception());
    }
    const std::vector<bool> back = wait();
    for (size_t r = 0; r < threads.size(); ++r) {
      back[r] ? threads[r].join() : threads[r].detach();
    }
    errors_.rethrow_original(hub_->poll());
  }

 private:
  using Clock = std::chrono::steady_clock;

  void run_rank(int rank) {
    set_log_rank(rank);
    ThreadWorld world(hub_, rank);
    try {
      body_(world);
    } catch (...) {
      const std::exception_ptr error = std::current_exception();
      const Ending ending = ending_of(error);
      errors_.add(rank, error);  // first, so that the error is kept whatever fails later
      world.fail(ending.text);
      if (ending.deserves_record()) world.record_failure(ending.text);
    }
    const std::scoped_lock lock(mutex_);
    back_[size_t(rank)] = true;
    change_.notify_all();
  }

  // This rank and those after it were not started; the others end as if they had failed.
  void fail_from(int first, const std::exception_ptr& error) {
    errors_.add(first, error);
    hub_->report(first, ending_of(error).text);
    const std::scoped_lock lock(mutex_);
    std::fill(back_.begin() + first, back_.end(), true);
  }

  // Waits until all ranks have returned, or no more will. Returns which have.
  std::vector<bool> wait() {
    constexpr auto kLook = std::chrono::milliseconds(20), kMoment = std::chrono::milliseconds(500);
    std::unique_lock lock(mutex_);
    const auto all_back = [&] { return std::ranges::all_of(back_, std::identity{}); };
    while (!change_.wait_for(lock, kLook, all_back) && !hub_->poll()) {
      if (const auto stall = find_disk_stall(hub_->options().disk_deadline)) fail_by(*stall);
    }
    if (!hub_->poll()) return back_;
    const Clock::time_point failed = Clock::now();
    change_.wait_for(lock, kMoment, all_back);
    const std::vector<bool> back = back_;
    lock.unlock();
    write_flight(back);
    lock.lock();
    while (!change_.wait_for(lock, kLook, all_back) && !only_stuck(failed)) {
    }
    for (int r = 0; r < hub_->ranks(); ++r) {
      if (!back_[size_t(r)]) leave_behind(r);
    }
    return back_;
  }

  // Fails the world for a rank that is stuck in a file operation and cannot report it itself.
  void fail_by(const DiskStall& stall) {
    errors_.add(stall.rank, std::make_exception_ptr(Error(ErrorKind::io, stall.text())));
    hub_->report(stall.rank, stall.text());
  }

  void leave_behind(int rank) {
    constexpr auto kLong = std::chrono::seconds(1);
    const std::optional<DiskStall> stall = find_disk_stall(kLong, rank);
    if (stall) fail_by(*stall);
    // A run that lost a rank has failed, whatever the others return.
    errors_.add(rank, std::make_exception_ptr(Error(ErrorKind::peer, text_of(*hub_->poll()))));
    // The log may be on the same disk.
    constexpr auto kMoment = std::chrono::seconds(2);
    finishes_within(kMoment, [rank, what = stall ? "is stuck " + stall->operation : "does not come back"] {
      log_warning("[comm] rank {} {}: exiting without it", rank, what);
    });
  }

  // Also writes the parts of ranks that have not: they ended without an error, or are stuck.
  void write_flight(const std::vector<bool>& back) {
    bool told = false;
    for (int r = 0; r < hub_->ranks(); ++r) told = told || hub_->flight(r)->told();
    if (!told || !hub_->flight(0)->wanted()) return;
    for (int r = 0; r < hub_->ranks(); ++r) {
      hub_->flight(r)->write_part(back[size_t(r)] ? "it ended without an error" : "it has not come back",
                                  hub_->poll());
    }
    hub_->flight(0)->finish([](int) { return false; });
  }

  // Whether no rank that is still missing has made progress for the deadline.
  bool only_stuck(Clock::time_point failed) const {
    constexpr auto kGrace = std::chrono::seconds(2);  // for ranks to see the failure and unwind
    const Clock::time_point now = Clock::now();
    if (now - failed < kGrace) return false;
    for (int r = 0; r < hub_->ranks(); ++r) {
      const bool alive = now - hub_->flight(r)->recorder()->last_sign() < hub_->options().deadline &&
                         !find_disk_stall(hub_->options().disk_deadline, r);
      if (!back_[size_t(r)] && alive) return false;
    }
    return true;
  }

  const std::shared_ptr<ThreadHub> hub_;
  const std::function<void(World&)> body_;
  ErrorList errors_;
  std::mutex mutex_;
  std::condition_variable change_;
  std::vector<bool> back_;  // by rank
};

}  // namespace

std::unique_ptr<World> make_self_world() {
  return std::make_unique<ThreadWorld>(std::make_shared<ThreadHub>(1, WorldOptions{}), 0);
}

void run_thread_ranks(int ranks, const WorldOptions& options, const std::function<void(World&)>& body) {
  require(ranks >= 1, ErrorKind::usage, "[comm] got {} ranks, expected at least 1", ranks);
  std::make_shared<ThreadRun>(ranks, options, body)->run();
}

}  // namespace zeno::comm
