#include "zeno/comm/mpi/mpi_link.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <span>
#include <thread>
#include <vector>

#include "zeno/base/error.h"

namespace zeno::comm {
namespace {

class MpiBatch final : public MessageBatch {
 public:
  // `sent` counts the bytes sent; null: they are not counted.
  MpiBatch(MPI_Comm comm, std::span<const int> places, int tag, std::atomic<int64_t>* sent)
      : comm_(comm), places_(places), tag_(tag), sent_(sent) {}

  // Open requests are abandoned: the world has failed.
  ~MpiBatch() override {
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      if (receives_[i]) MPI_Cancel(&requests_[i]);
      MPI_Request_free(&requests_[i]);
    }
  }

  void receive(int from, std::byte* data, size_t bytes) override {
    check_mpi(MPI_Irecv(data, size(bytes), MPI_BYTE, rank(from), tag_, comm_, add(from, true)), "receive");
  }
  void send(int to, const std::byte* data, size_t bytes) override {
    check_mpi(MPI_Isend(data, size(bytes), MPI_BYTE, rank(to), tag_, comm_, add(to, false)), "send");
    if (sent_ != nullptr) *sent_ += int64_t(bytes);
  }

  bool test() override {
    if (open_ == 0) return true;
    int done = 0;
    std::vector<int> indices(requests_.size());
    check_mpi(
        MPI_Testsome(int(requests_.size()), requests_.data(), &done, indices.data(), MPI_STATUSES_IGNORE),
        "test");
    if (done != MPI_UNDEFINED) open_ -= done;
    return open_ == 0;
  }

  std::vector<int> open() const override {
    std::vector<int> ranks;
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] != MPI_REQUEST_NULL) ranks.push_back(ranks_[i]);
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return ranks;
  }

 private:
  static int size(size_t bytes) {
    ensure(bytes <= size_t(INT_MAX), "[comm] a message of {} bytes, expected chunks below 2 GiB", bytes);
    return int(bytes);
  }
  int rank(int place) const { return places_[size_t(place)]; }
  MPI_Request* add(int place, bool receives) {
    requests_.push_back(MPI_REQUEST_NULL);
    ranks_.push_back(rank(place));
    receives_.push_back(receives);
    ++open_;
    return &requests_.back();
  }

  MPI_Comm comm_;
  std::span<const int> places_;  // of the link
  int tag_;
  std::atomic<int64_t>* sent_;
  int open_ = 0;
  std::vector<MPI_Request> requests_;
  std::vector<int> ranks_;
  std::vector<bool> receives_;
};

class MpiSum final : public RemoteWork {
 public:
  MpiSum(MPI_Comm comm, std::span<const int> ranks, const RemoteSum& sum)
      : ranks_(ranks.begin(), ranks.end()), values_(sum.values) {
    int place = 0;
    check_mpi(MPI_Comm_rank(comm, &place), "tell the rank");
    ranks_.erase(ranks_.begin() + place);
    ensure(sum.count <= INT_MAX, "[comm] a sum of {} values, expected chunks below 2^31", sum.count);
    float* const values = reinterpret_cast<float*>(values_.get());
    const int count = int(sum.count);
    check_mpi(sum.scatter ? MPI_Ireduce_scatter_block(MPI_IN_PLACE, values, count / int(ranks.size()),
                                                      MPI_FLOAT, MPI_SUM, comm, &request_)
                          : MPI_Iallreduce(MPI_IN_PLACE, values, count, MPI_FLOAT, MPI_SUM, comm, &request_),
              "begin a sum");
  }

  // MPI cannot cancel a collective: the memory that it may still use is kept until the process ends.
  ~MpiSum() override {
    if (request_ != MPI_REQUEST_NULL) new (std::nothrow) std::shared_ptr(values_);
  }

  bool test() override {
    int done = 0;
    check_mpi(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), "test a sum");
    return done != 0;
  }
  // MPI does not say who is late.
  std::vector<int> open() const override { return ranks_; }

 private:
  std::vector<int> ranks_;  // the others
  std::shared_ptr<std::byte[]> values_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

}  // namespace

void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  fail(ErrorKind::peer, "[comm] MPI could not {}: {}", what, text.data());
}

MPI_Comm duplicate(MPI_Comm comm, OpWait& wait) {
  // On the heap: if this fails, MPI may still write them later.
  struct State {
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  auto* state = new State;
  check_mpi(MPI_Comm_idup(comm, &state->comm, &state->request), "duplicate a communicator");
  for (int done = 0; done == 0;) {
    check_mpi(MPI_Test(&state->request, &done, MPI_STATUS_IGNORE), "duplicate a communicator");
    if (done != 0) break;
    wait.check();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  const MPI_Comm copy = state->comm;
  delete state;
  check_mpi(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN), "set an error handler");
  return copy;
}

// MPI_Comm_create_group blocks, so a separate thread calls it and this one keeps its deadline.
MPI_Comm make_group(MPI_Comm comm, const std::vector<int>& ranks, OpWait& wait) {
  struct State {
    std::atomic<bool> done{false};
    int result = MPI_SUCCESS;
    MPI_Comm comm = MPI_COMM_NULL;
  };
  const auto state = std::make_shared<State>();
  std::thread([state, comm, ranks] {
    MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
    state->result = MPI_Comm_group(comm, &all);
    if (state->result == MPI_SUCCESS)
      state->result = MPI_Group_incl(all, int(ranks.size()), ranks.data(), &some);
    if (state->result == MPI_SUCCESS) state->result = MPI_Comm_create_group(comm, some, 0, &state->comm);
    for (MPI_Group* group : {&all, &some})
      if (*group != MPI_GROUP_NULL) MPI_Group_free(group);
    state->done = true;
  }).detach();
  while (!state->done) {
    wait.check();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  check_mpi(state->result, "make a communicator of a group");
  check_mpi(MPI_Comm_set_errhandler(state->comm, MPI_ERRORS_RETURN), "set an error handler");
  return state->comm;
}

std::unique_ptr<MessageBatch> MpiLink::batch(Channel channel) {
  return std::make_unique<MpiBatch>(comm_, ranks_, int(channel) + 1,
                                    channel == Channel::records ? nullptr : &sent_);
}

std::unique_ptr<RemoteWork> MpiLink::sum(const RemoteSum& sum) {
  ensure(sums_ != MPI_COMM_NULL, "[comm] a sum by MPI on a link that was made for sums in the tree");
  auto work = std::make_unique<MpiSum>(sums_, ranks_, sum);
  sent_ += sum.counted;
  return work;
}

}  // namespace zeno::comm
