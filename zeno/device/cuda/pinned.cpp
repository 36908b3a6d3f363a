// Pinned host memory. The driver would fault large blocks in page by page on one thread, on any NUMA node;
// here threads near the GPU touch them, in huge pages, and the driver only registers what is there.
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <thread>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/base/math.h"
#include "zeno/device/cuda/memory.h"
#include "zeno/device/cuda/runtime.h"

namespace zeno {
namespace {

constexpr size_t kPage = 4096, kHugePage = size_t(2) << 20;
constexpr size_t kLarge = size_t(64) << 20;  // worth threads of its own

// The cores of the NUMA node next to the device; none where the machine has no such thing.
cpu_set_t cores_near(int device) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  int node = -1;
  if (cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, device) != cudaSuccess) cudaGetLastError();
  std::ifstream file(fmt::format("/sys/devices/system/node/node{}/cpulist", node));  // as in 0-15,32-47
  int first = 0;
  while (file >> first) {
    int last = first;
    if (file.peek() == '-') file.ignore() >> last;
    for (int core = first; core <= last && core < CPU_SETSIZE; ++core) CPU_SET(core, &cores);
    file.ignore();
  }
  return cores;
}

// Gives every page of [data, data + bytes) its memory, on the node of `cores`.
void touch(std::byte* data, size_t bytes, const cpu_set_t& cores) {
  const size_t threads = std::clamp<size_t>(bytes / kLarge, 1, size_t(available_cores()));
  const size_t share = round_up(div_ceil(bytes, threads), kHugePage);
  std::vector<std::jthread> team;
  for (size_t begin = 0; begin < bytes; begin += share) {
    team.emplace_back([=] {
      // Where these cores are forbidden, any core will do.
      if (CPU_COUNT(&cores) > 0) sched_setaffinity(0, sizeof(cores), &cores);
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

Block cuda_allocate_pinned(int device, size_t bytes) {
  cuda::check(cudaSetDevice(device), "choose the device");
  if (bytes < kLarge) {
    void* data = nullptr;
    cuda::check(cudaHostAlloc(&data, bytes, cudaHostAllocPortable), "allocate pinned host memory");
    return {static_cast<std::byte*>(data), [](std::byte* p) { cudaFreeHost(p); }};
  }
  const size_t mapped = round_up(bytes, kPage);
  std::byte* const data = map(mapped);
  touch(data, mapped, cores_near(device));
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
