// A stream of the first GPU with the scratch that kernels ask for, as benchmarks use it. Waits for its work
// before it goes.
#pragma once

#include "zeno/device/buffer.h"
#include "zeno/device/stream.h"
#include "zeno/kernels/matmul.h"

namespace zeno {

inline constexpr Device kGpu{Device::Kind::cuda, 0};

class GpuStream {
 public:
  GpuStream()
      : scratch_(allocator_of(kGpu)(kernel_scratch_bytes(kGpu.kind))),
        stream_({.device = kGpu,
                 .name = "bench",
                 .scratch = scratch_.data,
                 .scratch_bytes = kernel_scratch_bytes(kGpu.kind)}) {}
  ~GpuStream() {
    stream_.synchronize();
    scratch_.release(scratch_.data);
  }
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;

  operator StreamRef() const { return stream_; }
  void synchronize() { stream_.synchronize(); }

 private:
  Block scratch_;
  Stream stream_;
};

}  // namespace zeno
