#include "zeno/device/cuda/runtime.h"

#include <array>
#include <atomic>

#include "zeno/base/error.h"
#include "zeno/device/buffer.h"
#include "zeno/device/copy.h"
#include "zeno/device/cuda/memory.h"

namespace zeno {

void cuda::check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) [[likely]]
    return;
  const auto kind = status == cudaErrorMemoryAllocation ? ErrorKind::memory : ErrorKind::internal;
  fail(kind, "[cuda] {}: {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status));
}

int cuda::multiprocessors() {
  constexpr int kMost = 64;
  static std::array<std::atomic<int>, kMost> known;
  int device = 0;
  check(cudaGetDevice(&device), "ask for the device");
  ensure(device < kMost, "[cuda] device {}: expected less than {}", device, kMost);
  int count = known[size_t(device)];
  if (count > 0) return count;
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "ask for multiprocessors");
  known[size_t(device)] = count;
  return count;
}

int cuda_device_count() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) cudaGetLastError();  // no driver, no device: that is an answer, not a failure
  return status == cudaSuccess ? count : 0;
}

void cuda_choose_device(int device) { cuda::check(cudaSetDevice(device), "choose the device"); }

std::string cuda_pci_address(int device) {
  char address[16] = "";
  cuda::check(cudaDeviceGetPCIBusId(address, sizeof address, device), "ask for the PCI address");
  return address;
}

CudaMemory cuda_memory(int device) {
  CudaMemory memory;
  cuda_choose_device(device);
  cuda::check(cudaMemGetInfo(&memory.available, &memory.total), "ask for free memory");
  return memory;
}

Block cuda_allocate(int device, size_t bytes) {
  cuda_choose_device(device);
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status != cudaSuccess) cudaGetLastError();
  require(status == cudaSuccess, ErrorKind::memory, "[cuda] the device refused {}: {}", format_bytes(bytes),
          cudaGetErrorString(status));
  return {static_cast<std::byte*>(data), [](std::byte* p) { cudaFree(p); }};
}

void cuda_copy(StreamRef stream, std::byte* to, const std::byte* from, size_t bytes) {
  // The calling thread may be new: without a choice it would wake the first GPU too.
  cuda::check(cudaSetDevice(stream.device().index), "choose the device");
  cuda::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cuda::native(stream)), "copy");
}

void cuda_fill_zero(StreamRef stream, std::byte* to, size_t bytes) {
  cuda::check(cudaMemsetAsync(to, 0, bytes, cuda::native(stream)), "fill with zeros");
}

}  // namespace zeno
