// Ranks as threads of one process; a world of one is one such thread, the caller's.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/comm/cuda/communicators.h"
#include "zeno/comm/peers.h"
#include "zeno/comm/shared_region.h"
#include "zeno/comm/world.h"

namespace zeno::comm {
namespace {

// Threads have one address space.
class ThreadMemory final : public PeerMemory {
 public:
  Address publish(const std::byte* data) override {
    return {
        .shared = true, .block = 0, .block_bytes = 0, .offset = uint64_t(reinterpret_cast<uintptr_t>(data))};
  }
  const std::byte* resolve(int, const Address& address) override {
    return reinterpret_cast<const std::byte*>(uintptr_t(address.offset));
  }
  // Until they are out: a peer that reads freed memory would bring everybody down.
  std::chrono::milliseconds patience() const override { return std::chrono::hours(24); }
};

// What the threads share: the failure, the boards in the order of their making, and the place of exchange().
class ThreadHub final : public PeerWatch {
 public:
  ThreadHub(int ranks, const WorldOptions& options)
      : ranks_(ranks), options_(options), values_(size_t(ranks)) {}

  std::optional<Failure> poll() override { return note_.get(); }
  void report(int rank, std::string_view reason) noexcept override { note_.set(rank, reason); }

  int ranks() const { return ranks_; }
  const WorldOptions& options() const { return options_; }

  // The board of the `index`-th communicator; the first rank to ask makes it.
  std::byte* board(size_t index) {
    const std::scoped_lock lock(mutex_);
    while (boards_.size() <= index) {
      boards_.push_back(SharedRegion::anonymous(Board::bytes(ranks_, 0)));
      Board::construct(boards_.back().data(), ranks_);
    }
    return boards_[index].data();
  }

  std::vector<std::string> exchange(int rank, std::string_view bytes) {
    OpWait wait(*this, options_.deadline, {[] { return "exchange"; }, [&] { return missing(); }});
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
    return ranks.empty() ? "all have arrived" : list_ranks(ranks) + " not there";
  }

  const int ranks_;
  const WorldOptions options_;
  FailureNote note_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  std::deque<SharedRegion> boards_;
  std::vector<std::optional<std::string>> values_;
  std::vector<std::string> result_;
  int arrived_ = 0, taken_ = 0;
  uint64_t round_ = 0;
};

class ThreadWorld final : public World {
 public:
  ThreadWorld(std::shared_ptr<ThreadHub> hub, int rank)
      : hub_(std::move(hub)),
        rank_(rank),
        recorder_(std::make_shared<FlightRecorder>(hub_->options().flight_records)) {}

  int rank() const override { return rank_; }
  int size() const override { return hub_->ranks(); }
  int local_rank() const override { return rank_; }
  int local_size() const override { return hub_->ranks(); }

  std::unique_ptr<Communicator> communicator(std::string_view name, Device device) override {
    check_same(*this, "a new communicator", title_of_new(name, device));
    GroupParts parts;
    parts.name = name;
    parts.layout = make_layout(rank_, std::vector<std::string>(size_t(size()), "here"));
    parts.board_memory = hub_->board(communicators_++);
    parts.deadline = hub_->options().deadline;
    parts.board_owner = hub_;
    parts.watch = hub_;
    parts.memory = std::make_shared<ThreadMemory>();
    parts.recorder = recorder_;
    if (device.kind == Device::Kind::cpu) return make_group_communicator(std::move(parts));
    parts.device_staging_bytes = hub_->options().device_staging_bytes;
    return make_cuda_thread_communicator(std::move(parts), device,
                                         [this](std::string_view bytes) { return exchange(bytes); });
  }

  Allocator allocator(Device device) override { return allocator_of(device); }
  void fail(std::string_view reason) noexcept override { hub_->report(rank_, reason); }
  std::vector<std::string> exchange(std::string_view bytes) override { return hub_->exchange(rank_, bytes); }
  std::string flight_records() const override { return recorder_->dump(); }
  void finish() override { exchange("finish"); }

 private:
  std::shared_ptr<ThreadHub> hub_;  // shared with queued operations and the other ranks
  int rank_;
  std::shared_ptr<FlightRecorder> recorder_;
  size_t communicators_ = 0;
};

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

bool is_peer_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return e.kind() == ErrorKind::peer;
  } catch (...) {
    return false;
  }
}

// Errors of the ranks in the order they came.
class ErrorList {
 public:
  void add(int rank, std::exception_ptr error) {
    const std::scoped_lock lock(mutex_);
    errors_.push_back({rank, std::move(error)});
  }
  // The rank that failed first knows best; then whoever has more to say than that a peer failed.
  void rethrow_original(const std::optional<Failure>& failure) const {
    if (errors_.empty()) return;
    for (const Entry& entry : errors_) {
      if (failure && entry.rank == failure->rank) std::rethrow_exception(entry.error);
    }
    for (const Entry& entry : errors_) {
      if (!is_peer_error(entry.error)) std::rethrow_exception(entry.error);
    }
    std::rethrow_exception(errors_.front().error);
  }

 private:
  struct Entry {
    int rank;
    std::exception_ptr error;
  };
  std::mutex mutex_;
  std::vector<Entry> errors_;
};

}  // namespace

std::unique_ptr<World> make_self_world() {
  return std::make_unique<ThreadWorld>(std::make_shared<ThreadHub>(1, WorldOptions{}), 0);
}

void run_thread_ranks(int ranks, const WorldOptions& options, const std::function<void(World&)>& body) {
  require(ranks >= 1, ErrorKind::usage, "[comm] got {} ranks, expected at least 1", ranks);
  const auto hub = std::make_shared<ThreadHub>(ranks, options);
  ErrorList errors;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      set_log_rank(rank);
      try {
        ThreadWorld world(hub, rank);
        body(world);
      } catch (...) {
        const std::exception_ptr error = std::current_exception();
        hub->report(rank, message_of(error));
        errors.add(rank, error);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  errors.rethrow_original(hub->poll());
}

}  // namespace zeno::comm
