// The CUDA side of Device, Buffer and copies, behind plain functions so that the files that choose between
// devices need no CUDA header. Without CUDA in the build, device/no_cuda.cpp answers: no device.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "zeno/device/buffer.h"
#include "zeno/device/stopwatch.h"
#include "zeno/device/stream.h"

namespace zeno {

// Scratch of every CUDA stream that runs kernels.
namespace cuda {
inline constexpr size_t kScratchBytes = size_t(64) << 20;
}

int cuda_device_count();
void cuda_choose_device(int device);
struct CudaMemory {
  size_t available = 0, total = 0;
};
CudaMemory cuda_memory(int device);
std::string cuda_pci_address(int device);
// The NUMA node of the host that is next to the device; -1: not known.
int cuda_numa_node(int device);
Block cuda_allocate(int device, size_t bytes);
// Pinned host memory near the device. Large blocks are touched by all cores the process may use.
Block cuda_allocate_pinned(int device, size_t bytes);
void cuda_copy(StreamRef stream, std::byte* to, const std::byte* from, size_t bytes);
void cuda_fill_zero(StreamRef stream, std::byte* to, size_t bytes);
std::unique_ptr<Stopwatch> make_cuda_stopwatch(int device, size_t marks);

}  // namespace zeno
