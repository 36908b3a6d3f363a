#include "zeno/device/cuda/counter.h"

#include <cudaTypedefs.h>

#include <mutex>
#include <new>
#include <span>

#include "zeno/device/cuda/driver.h"

namespace zeno {
namespace {

constexpr unsigned kSince = 11070;  // CUDA 11.7

CUdeviceptr address_of(const cuda::Counter* counter) { return reinterpret_cast<CUdeviceptr>(counter); }

}  // namespace

cuda::Counter* cuda::make_counter() {
  static_assert(sizeof(Counter) == sizeof(uint64_t) && Counter::is_always_lock_free);
  constexpr size_t kCounters = 512;  // a page
  static std::mutex mutex;
  static std::span<Counter> unused;
  const std::scoped_lock lock(mutex);
  if (unused.empty()) {
    void* page = nullptr;
    check(cudaHostAlloc(&page, kCounters * sizeof(Counter), cudaHostAllocPortable), "allocate counters");
    unused = {new (page) Counter[kCounters](), kCounters};
  }
  Counter* counter = &unused.front();
  unused = unused.subspan(1);
  return counter;
}

void cuda::wait_counter(cudaStream_t stream, const Counter* counter, uint64_t value) {
  static const auto wait = driver_function<PFN_cuStreamWaitValue64_v11070>("cuStreamWaitValue64", kSince);
  check_driver(wait(stream, address_of(counter), value, CU_STREAM_WAIT_VALUE_GEQ), "wait for a CPU stream");
}

void cuda::write_counter(cudaStream_t stream, Counter* counter, uint64_t value) {
  static const auto write = driver_function<PFN_cuStreamWriteValue64_v11070>("cuStreamWriteValue64", kSince);
  check_driver(write(stream, address_of(counter), value, CU_STREAM_WRITE_VALUE_DEFAULT), "tell the CPU");
}

}  // namespace zeno
