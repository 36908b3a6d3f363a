// What every part of the CUDA backend needs: checked calls and the native handle behind a StreamRef.
// Only files under a cuda/ folder include this; the rest of Zeno sees Device, Stream and Buffer.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <span>

#include "zeno/device/cuda/memory.h"
#include "zeno/device/stream.h"

namespace zeno::cuda {

// Throws Error(internal) with the runtime's words; out of memory becomes Error(memory).
void check(cudaError_t status, const char* what);
// After a kernel launch: reports a bad launch configuration at once (never waits for the kernel).
inline void check_launch(const char* kernel) { check(cudaGetLastError(), kernel); }

// The stream behind a StreamRef whose device is CUDA.
cudaStream_t native(StreamRef stream);

// Device memory that kernels of this stream may use until they return to it: partial sums, library
// workspaces. In stream order, so one area serves all of them.
std::span<std::byte> scratch(StreamRef stream);

// Streaming multiprocessors of the current device; read once per device.
int multiprocessors();

}  // namespace zeno::cuda
