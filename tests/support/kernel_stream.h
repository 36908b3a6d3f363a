// A CPU stream with the scratch that kernels ask for, for tests and benchmarks. Owns both; calls on ref() are
// asynchronous, sync() waits and rethrows the first error.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>

#include "zeno/base/math.h"
#include "zeno/device/stream.h"
#include "zeno/kernels/matmul.h"

namespace zeno {

struct KernelStream {
  explicit KernelStream(int threads = 2)
      : scratch(static_cast<std::byte*>(
            std::aligned_alloc(4096, round_up(size_t(threads) * kernel_scratch_bytes(), size_t(4096))))),
        stream(StreamOptions{.device = {},
                             .name = "test",
                             .rank = -1,
                             .threads = threads,
                             .scratch = scratch.get(),
                             .scratch_bytes = kernel_scratch_bytes()}) {}

  StreamRef ref() { return stream.ref(); }
  void sync() { stream.ref().synchronize(); }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> scratch;  // outlives the stream
  Stream stream;
};

}  // namespace zeno
