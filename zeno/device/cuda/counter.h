// A word that the CPU and every GPU see, for waiting between CPU and CUDA streams without a call that blocks.
// All calls are async. Thread rule: any thread.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

namespace zeno::cuda {

using Counter = std::atomic<uint64_t>;

// Starts at 0. Never given back: a queued wait may still look at it, and freeing pinned memory would wait for
// the whole device. Eight bytes for each stream that needs one.
Counter* make_counter();
// Work queued later on `stream` waits until the counter has at least `value`. Whoever writes that value must
// have been queued before: streams that share a hardware queue run in the order of the calls.
void wait_counter(cudaStream_t stream, const Counter* counter, uint64_t value);
// Writes `value` when everything queued before on `stream` is done and visible to the CPU.
void write_counter(cudaStream_t stream, Counter* counter, uint64_t value);

}  // namespace zeno::cuda
