#include "zeno/comm/cuda/nccl_comm.h"

#include <sched.h>

#include <chrono>
#include <exception>
#include <thread>

#include "zeno/base/error.h"

namespace zeno::comm {
namespace {

using Clock = std::chrono::steady_clock;

std::string words(ncclResult_t result, ncclComm_t comm) {
  const char* last = ncclGetLastError(comm);
  return fmt::format("{}{}{}", ncclGetErrorString(result), last != nullptr && *last != 0 ? ": " : "",
                     last != nullptr ? last : "");
}

}  // namespace

void check_nccl(ncclResult_t result, const char* what) {
  require(result == ncclSuccess || result == ncclInProgress, ErrorKind::internal, "[nccl] {}: {}", what,
          words(result, nullptr));
}

NcclComm::NcclComm(const Place& place, std::shared_ptr<NcclMemory> memory, OpWait& wait)
    : world_rank_(place.world_rank), memory_(std::move(memory)) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = ncclCommInitRankConfig(&comm_, place.size, place.id, place.rank, &config);
  try {
    if (result != ncclSuccess && result != ncclInProgress) fail_all(result, wait);
    settle(wait);
  } catch (...) {
    abort();
    throw;
  }
  memory_->add(*this);
}

NcclComm::~NcclComm() {
  memory_->remove(*this);
  abort();
}

void NcclComm::fail_all(ncclResult_t result, OpWait& wait) {
  std::string text;
  {
    const std::scoped_lock lock(mutex_);
    text = words(result, comm_);
  }
  wait.fail_transport(fmt::format("[comm] NCCL failed on rank {}: {}", world_rank_, text));
}

void NcclComm::settle(OpWait& wait) {
  constexpr int kEager = 2000;
  for (int idle = 0;; ++idle) {
    ncclResult_t state = ncclSuccess;
    bool ended = false;
    {
      const std::scoped_lock lock(mutex_);
      ended = comm_ == nullptr;
      if (!ended && ncclCommGetAsyncError(comm_, &state) != ncclSuccess) state = ncclInternalError;
    }
    if (ended) {  // whoever aborted it has reported why
      wait.check_failure();
      fail(ErrorKind::peer, "[comm] the communicator of NCCL has been aborted");
    }
    if (state == ncclSuccess) return;
    if (state != ncclInProgress) fail_all(state, wait);
    if (idle < kEager) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      wait.check();
    }
  }
}

void NcclComm::group(const Calls& calls, OpWait& wait) {
  ncclResult_t result = ncclSuccess;
  std::exception_ptr error;
  {
    const std::scoped_lock lock(mutex_);
    if (comm_ != nullptr) {
      check_nccl(ncclGroupStart(), "begin a group");
      try {
        calls(comm_);
      } catch (...) {
        error = std::current_exception();
      }
      result = ncclGroupEnd();  // also after an error: the group belongs to this thread
    }
  }
  if (error) std::rethrow_exception(error);
  if (result != ncclSuccess && result != ncclInProgress) fail_all(result, wait);
  settle(wait);
}

void NcclComm::use(const std::byte* buffer) {
  const std::optional<NcclMemory::Range> block = memory_->find(buffer);
  if (!block) return;
  const std::scoped_lock lock(mutex_);
  if (comm_ == nullptr || registered_.contains(block->data)) return;
  void* handle = nullptr;
  const ncclResult_t result = ncclCommRegister(comm_, block->data, block->bytes, &handle);
  registered_[block->data] = result == ncclSuccess ? handle : nullptr;
}

void NcclComm::forget(std::byte* block) noexcept {
  const std::scoped_lock lock(mutex_);
  const auto found = registered_.find(block);
  if (found == registered_.end()) return;
  if (comm_ != nullptr && found->second != nullptr) ncclCommDeregister(comm_, found->second);
  registered_.erase(found);
}

std::optional<std::string> NcclComm::trouble() {
  const std::scoped_lock lock(mutex_);
  ncclResult_t state = ncclSuccess;
  if (comm_ == nullptr) return std::nullopt;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  if (asked != ncclSuccess) state = asked;
  if (state == ncclSuccess || state == ncclInProgress) return std::nullopt;
  return words(state, comm_);
}

void NcclComm::abort() noexcept {
  const std::scoped_lock lock(mutex_);
  if (comm_ == nullptr) return;
  ncclCommAbort(comm_);
  comm_ = nullptr;
}

void NcclComm::close() noexcept {
  constexpr auto kMoment = std::chrono::seconds(5);
  const std::scoped_lock lock(mutex_);
  if (comm_ == nullptr) return;
  for (const auto& [block, handle] : registered_) {
    if (handle != nullptr) ncclCommDeregister(comm_, handle);
  }
  registered_.clear();
  ncclResult_t state = ncclCommFinalize(comm_);
  const auto begin = Clock::now();
  while (state == ncclInProgress && Clock::now() - begin < kMoment) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (ncclCommGetAsyncError(comm_, &state) != ncclSuccess) state = ncclInternalError;
  }
  if (state == ncclSuccess) {
    ncclCommDestroy(comm_);
  } else {
    ncclCommAbort(comm_);
  }
  comm_ = nullptr;
}

}  // namespace zeno::comm
