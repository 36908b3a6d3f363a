// Functions that only the CUDA driver has, found in the one that the runtime has loaded: Zeno does not link
// it, so that one binary runs without a GPU too.
#pragma once

#include <cuda.h>

#include "zeno/base/error.h"
#include "zeno/device/cuda/runtime.h"

namespace zeno::cuda {

// `since`: the version of CUDA in which the function got its present form, 11070 for 11.7.
template <class Function>
Function driver_function(const char* name, unsigned since) {
  void* function = nullptr;
  check(cudaGetDriverEntryPointByVersion(name, &function, since, cudaEnableDefault), name);
  require(function != nullptr, ErrorKind::usage, "[cuda] the driver has no {}: expected 525 or newer", name);
  return reinterpret_cast<Function>(function);
}

inline void check_driver(CUresult status, const char* what) {
  if (status == CUDA_SUCCESS) [[likely]]
    return;
  check(cudaGetLastError(), what);
  fail(ErrorKind::internal, "[cuda] {}: the driver answered {}", what, int(status));
}

}  // namespace zeno::cuda
