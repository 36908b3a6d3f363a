#include "zeno/device/cuda/counter.h"

#include <cudaTypedefs.h>

#include <mutex>
#include <new>
#include <span>

#include "zeno/base/error.h"
#include "zeno/device/cuda/runtime.h"

namespace zeno {
namespace {

// The runtime has no such operations: they come from the driver that it has loaded.
template <class Function>
Function driver_function(const char* name) {
  constexpr unsigned kVersion = 11070;  // since when these functions have their present form
  void* function = nullptr;
  cuda::check(cudaGetDriverEntryPointByVersion(name, &function, kVersion, cudaEnableDefault), name);
  require(function != nullptr, ErrorKind::usage, "[cuda] the driver has no {}: expected 525 or newer", name);
  return reinterpret_cast<Function>(function);
}

void check_driver(CUresult status, const char* what) {
  if (status == CUDA_SUCCESS) [[likely]]
    return;
  cuda::check(cudaGetLastError(), what);
  fail(ErrorKind::internal, "[cuda] {}: the driver answered {}", what, int(status));
}

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
  static const auto wait = driver_function<PFN_cuStreamWaitValue64_v11070>("cuStreamWaitValue64");
  check_driver(wait(stream, address_of(counter), value, CU_STREAM_WAIT_VALUE_GEQ), "wait for a CPU stream");
}

void cuda::write_counter(cudaStream_t stream, Counter* counter, uint64_t value) {
  static const auto write = driver_function<PFN_cuStreamWriteValue64_v11070>("cuStreamWriteValue64");
  check_driver(write(stream, address_of(counter), value, CU_STREAM_WRITE_VALUE_DEFAULT), "tell the CPU");
}

}  // namespace zeno
