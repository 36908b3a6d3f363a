// The scratch that every thread of a CPU stream offers to kernels: one fixed size, so that memory is known up
// front.
#pragma once

#include <string_view>

#include "zeno/base/error.h"
#include "zeno/base/workers.h"

namespace zeno {

inline constexpr int64_t kScratchBytes = int64_t(5) << 20;

inline void check_scratch(const Workers& workers, std::string_view where) {
  ensure(workers.scratch(0) != nullptr && int64_t(workers.scratch_bytes()) >= kScratchBytes,
         "[{}] scratch of the stream: got {} bytes per thread, expected {} (kernel_scratch_bytes)", where,
         workers.scratch(0) ? workers.scratch_bytes() : 0, kScratchBytes);
}

}  // namespace zeno
