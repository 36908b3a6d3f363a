#include "zeno/comm/mpi/mpi_hub.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <numeric>
#include <thread>

#include "zeno/base/error.h"
#include "zeno/base/host.h"
#include "zeno/base/log.h"
#include "zeno/comm/flight/op_record.h"

namespace zeno::comm {
namespace {

constexpr int kNewsTag = 9;

struct News {
  int32_t rank = -1;
  char reason[1500] = {};
};

// Equal for two processes exactly when they can see each other in /proc: same kernel, same process table.
std::string host_identity() {
  std::array<char, PATH_MAX> table{};
  const ssize_t length = readlink("/proc/self/ns/pid", table.data(), table.size() - 1);
  return fmt::format("{} {} {}", host_name(), boot_id(), length > 0 ? table.data() : "");
}

template <class T>
std::string to_bytes(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

template <class T>
T from_bytes(std::string_view bytes) {
  ensure(bytes.size() >= sizeof(T), "[comm] a value of {} bytes, expected {}", bytes.size(), sizeof(T));
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

}  // namespace

MpiHub::MpiHub(const WorldOptions& options) : options_(options), memory_(std::make_shared<ProcessMemory>()) {
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "tell the rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "tell the size");
  everyone_.resize(size_t(size_));
  std::iota(everyone_.begin(), everyone_.end(), 0);
  OpWait wait = patience("the start of the world");
  comm_ = duplicate(MPI_COMM_WORLD, wait);
  find_hosts();
  share_control();
  job_ = exchange(rank_ == 0 ? new_job_name() : "").front();
}

void MpiHub::find_hosts() {
  std::vector<ProcessMemory::Source> sources;
  const std::string host =
      options_.ranks_per_host > 0 ? fmt::format("host {}", rank_ / options_.ranks_per_host) : host_identity();
  for (const std::string& text : exchange(to_bytes(memory_->source()) + host)) {
    sources.push_back(from_bytes<ProcessMemory::Source>(text));
    hosts_.push_back(text.substr(sizeof(ProcessMemory::Source)));
  }
  layout_ = make_layout(rank_, everyone_, hosts_);
  std::vector<ProcessMemory::Source> local;
  for (const int r : layout_.local) local.push_back(sources[size_t(r)]);
  const std::vector<std::string> connected = exchange(memory_->connect(local) ? "yes" : "no");
  if (std::find(connected.begin(), connected.end(), "no") != connected.end()) {
    if (rank_ == 0) {
      log_warning(
          "[comm] processes of one host may not open each other's memory (/proc/PID/fd); they will use "
          "slower messages");
    }
    for (int r = 0; r < size_; ++r) hosts_[size_t(r)] = fmt::format("rank {}", r);
    layout_ = make_layout(rank_, everyone_, hosts_);
    memory_ = std::make_shared<ProcessMemory>();
    ensure(memory_->connect({memory_->source()}), "[comm] a process cannot open its own memory");
  }
  for (const int r : layout_.local) {
    if (r != rank_) processes_.add(r, sources[size_t(r)].pid);
  }
}

void MpiHub::share_control() {
  control_ = reinterpret_cast<Control*>(
      share(layout_.local, sizeof(Control), [](std::byte* memory) { new (memory) Control; }));
}

std::byte* MpiHub::share(const std::vector<int>& ranks, size_t bytes,
                         const std::function<void(std::byte*)>& fill) {
  std::byte* data = nullptr;
  Address address;
  const int maker = ranks.front();
  if (rank_ == maker) {
    data = memory_->allocate_sparse(bytes);
    fill(data);
    address = memory_->publish(data);
  }
  const std::vector<std::string> addresses = exchange(to_bytes(address));
  if (rank_ != maker) {
    address = from_bytes<Address>(addresses[size_t(maker)]);
    data = const_cast<std::byte*>(memory_->resolve(local_index(maker), address));
  }
  exchange("mapped");  // the rank that made it must not end before all have mapped it
  return data;
}

int MpiHub::local_index(int rank) const {
  return int(std::ranges::lower_bound(layout_.local, rank) - layout_.local.begin());
}

std::shared_ptr<RemoteLink> MpiHub::link(const Layout& group, Reduction reduction) {
  if (layout_.remote.empty()) return nullptr;
  OpWait wait = patience("the making of a communicator");
  const MPI_Comm messages = duplicate(comm_, wait);
  if (group.remote.empty()) return nullptr;
  // Tree sums use messages, so MPI does not need to know the group.
  const MPI_Comm sums =
      reduction == Reduction::native ? make_group(messages, group.ranks, wait) : MPI_COMM_NULL;
  return std::make_shared<MpiLink>(messages, sums, group.ranks);
}

OpWait MpiHub::patience(std::string_view what) {
  return OpWait(*this, options_.deadline,
                {[what = std::string(what)] { return what; },
                 [this] {
                   return open_batch_ == nullptr
                              ? std::string("some ranks have not arrived")
                              : fmt::format("nothing received from {}", list_ranks(open_batch_->open()));
                 }});
}

std::vector<std::string> MpiHub::exchange(std::string_view bytes, std::string_view what) {
  OpWait wait = patience(what);
  MpiLink link(comm_, MPI_COMM_NULL, everyone_);
  const auto complete = [&](MessageBatch& batch) {
    struct Reset {
      const MessageBatch*& open;
      ~Reset() { open = nullptr; }
    } reset{open_batch_};
    open_batch_ = &batch;
    while (!batch.test()) {
      wait.check();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  };
  std::vector<uint64_t> sizes(size_t(size_), bytes.size());
  const uint64_t mine = bytes.size();
  const auto heads = link.batch(Channel::records);
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    heads->receive(r, reinterpret_cast<std::byte*>(&sizes[size_t(r)]), sizeof(uint64_t));
    heads->send(r, reinterpret_cast<const std::byte*>(&mine), sizeof mine);
  }
  complete(*heads);
  std::vector<std::string> values(static_cast<size_t>(size_), std::string(bytes));
  const auto bodies = link.batch(Channel::data);
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    values[size_t(r)].resize(sizes[size_t(r)]);
    bodies->receive(r, reinterpret_cast<std::byte*>(values[size_t(r)].data()), sizes[size_t(r)]);
    bodies->send(r, reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
  }
  complete(*bodies);
  return values;
}

std::optional<Failure> MpiHub::poll() {
  constexpr auto kEvery = std::chrono::milliseconds(20);
  FailureNote& note = control_ != nullptr ? control_->note : early_note_;
  if (const std::optional<Failure> failure = note.get()) return failure;
  if (const std::unique_lock lock(poll_mutex_, std::try_to_lock); lock.owns_lock()) {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_look_) return std::nullopt;
    next_look_ = now + kEvery;
    receive_news();
    if (const std::optional<int> rank = processes_.ended()) {
      report(*rank, fmt::format("its process ({}) has ended", processes_.pid_of(*rank)));
    }
  }
  return note.get();
}

void MpiHub::report(int rank, std::string_view reason) noexcept {
  FailureNote& note = control_ != nullptr ? control_->note : early_note_;
  if (!note.set(rank, reason) || layout_.remote.empty()) return;
  News news{rank, {}};
  reason.copy(news.reason, sizeof news.reason - 1);
  for (const int r : layout_.remote) {
    auto* copy = new (std::nothrow) News(news);  // MPI may read it until the process ends
    if (copy == nullptr) return;
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Isend(copy, int(sizeof news), MPI_BYTE, r, kNewsTag, comm_, &request) == MPI_SUCCESS) {
      MPI_Request_free(&request);
    }
  }
}

// Receives a failure from another host. It is not passed on, because the rank that noticed it has told all
// ranks.
void MpiHub::receive_news() {
  if (layout_.remote.empty()) return;
  int found = 0;
  MPI_Message message;
  MPI_Status status;
  check_mpi(MPI_Improbe(MPI_ANY_SOURCE, kNewsTag, comm_, &found, &message, &status), "look for failures");
  if (found == 0) return;
  News news;
  check_mpi(MPI_Mrecv(&news, int(sizeof news), MPI_BYTE, &message, MPI_STATUS_IGNORE), "receive a failure");
  news.reason[sizeof news.reason - 1] = 0;
  (control_ != nullptr ? control_->note : early_note_).set(news.rank, news.reason);
}

void MpiHub::linger() noexcept {
  if (control_ == nullptr) return;
  const auto wait_until = [](auto&& done) {
    constexpr auto kMoment = std::chrono::milliseconds(2000);
    const auto end = std::chrono::steady_clock::now() + kMoment;
    while (!done() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return done();
  };
  control_->leaving.fetch_add(1);
  if (!wait_until([&] { return control_->leaving.load() >= layout_.local.size(); })) return;
  // The exit code of a job is that of the process whose end the launcher sees first. That should be the one
  // that failed.
  const std::optional<Failure> failure = control_->note.get();
  if (!failure || failure->rank == rank_ || !std::ranges::binary_search(layout_.local, failure->rank)) return;
  const auto process = pid_t(processes_.pid_of(failure->rank));
  wait_until([&] { return ::kill(process, 0) != 0; });
}

}  // namespace zeno::comm
