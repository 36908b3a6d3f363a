// Pinned host memory. The driver would fault large blocks in page by page on one thread, on any NUMA node;
// here threads near the GPU touch them, in huge pages, and the driver only registers what is there.
#include <sys/mman.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/base/host.h"
#include "zeno/base/math.h"
#include "zeno/device/cores.h"
#include "zeno/device/cuda/memory.h"
#include "zeno/device/cuda/runtime.h"

namespace zeno {
namespace {

constexpr size_t kPage = 4096, kHugePage = size_t(2) << 20;
constexpr size_t kLarge = size_t(64) << 20;  // worth threads of its own

// Gives every page of [data, data + bytes) its memory, on the node of the device.
void touch(std::byte* data, size_t bytes, int device) {
  const size_t threads = std::clamp<size_t>(bytes / kLarge, 1, size_t(available_cores()));
  const size_t share = round_up(div_ceil(bytes, threads), kHugePage);
  std::vector<std::jthread> team;
  for (size_t begin = 0; begin < bytes; begin += share) {
    team.emplace_back([=] {
      stay_near({Device::Kind::cuda, device});
      const size_t end = std::min(bytes, begin + share);
      for (size_t at = begin; at < end; at += kPage) {
        *const_cast<volatile std::byte*>(data + at) = std::byte(0);
      }
    });
  }
}

// Address space that begins at a huge page.
std::byte* map(size_t bytes) {
  void* raw = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(raw != MAP_FAILED, ErrorKind::memory, "[cuda] the system refused {} of host memory",
          format_bytes(bytes));
  auto* begin = static_cast<std::byte*>(raw);
  const size_t skipped = round_up(uintptr_t(begin), kHugePage) - uintptr_t(begin);
  if (skipped > 0) munmap(begin, skipped);
  if (skipped < kHugePage) munmap(begin + skipped + bytes, kHugePage - skipped);
  madvise(begin + skipped, bytes, MADV_HUGEPAGE);
  return begin + skipped;
}

}  // namespace

int cuda_numa_node(int device) {
  int node = -1;
  if (cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, device) != cudaSuccess) cudaGetLastError();
  return node;
}

Block cuda_allocate_pinned(int device, size_t bytes) {
  cuda::check(cudaSetDevice(device), "choose the device");
  if (bytes < kLarge) {
    void* data = nullptr;
    cuda::check(cudaHostAlloc(&data, bytes, cudaHostAllocPortable), "allocate pinned host memory");
    return {static_cast<std::byte*>(data), [](std::byte* p) { cudaFreeHost(p); }};
  }
  const size_t mapped = round_up(bytes, kPage);
  std::byte* const data = map(mapped);
  touch(data, mapped, device);
  const cudaError_t status = cudaHostRegister(data, mapped, cudaHostRegisterPortable);
  if (status != cudaSuccess) {
    cudaGetLastError();
    munmap(data, mapped);
    fail(ErrorKind::memory, "[cuda] {} of host memory cannot be pinned: {}", format_bytes(bytes),
         cudaGetErrorString(status));
  }
  return {data, [mapped](std::byte* p) {
            cudaHostUnregister(p);
            munmap(p, mapped);
          }};
}

}  // namespace zeno
