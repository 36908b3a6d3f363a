#include "zeno/device/copy.h"

#include <algorithm>
#include <cstring>

#include "zeno/device/cuda/memory.h"

namespace zeno {
namespace {
constexpr int64_t kGrain = 4 << 20;  // enough for a thread to be worth waking
}

void copy_async(StreamRef stream, std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes == 0) return;
  if (stream.device().kind == Device::Kind::cuda) return cuda_copy(stream, to, from, bytes);
  stream.launch([=](Workers& workers) {
    workers.for_ranges(int64_t(bytes), kGrain, [&](int64_t begin, int64_t end, int) {
      std::memcpy(to + begin, from + begin, size_t(end - begin));
    });
  });
}

void fill_zero_async(StreamRef stream, std::byte* to, size_t bytes) {
  if (bytes == 0) return;
  if (stream.device().kind == Device::Kind::cuda) return cuda_fill_zero(stream, to, bytes);
  stream.launch([=](Workers& workers) {
    workers.for_ranges(int64_t(bytes), kGrain, [&](int64_t begin, int64_t end, int) {
      std::memset(to + begin, 0, size_t(end - begin));
    });
  });
}

}  // namespace zeno
