#include "zeno/base/math.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/attention/attention_documents.h"

namespace zeno::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;

// Tokens [base, base + kThreads) that start a document: their rank among the `found` before, and the new
// count.
__device__ int64_t rank_starts(const int32_t* doc_start, int64_t tokens, int64_t seq, int64_t base,
                               int64_t found, const DocumentTables& tables, int* counts) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t token = base + threadIdx.x;
  const bool begins = token < tokens && doc_start[token] == int32_t(token % seq);
  const unsigned ballot = __ballot_sync(~0u, begins);
  if (lane == 0) counts[warp] = __popc(ballot);
  __syncthreads();
  int64_t before = found, total = found;
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) before += counts[w];
    total += counts[w];
  }
  const int64_t rank = before + __popc(ballot & ((1u << lane) - 1));
  if (begins && rank < tables.capacity) tables.starts[rank] = int32_t(token);
  __syncthreads();  // counts are written again
  return total;
}

// One block: documents must come out in order, and there are few tokens.
__global__ void __launch_bounds__(kThreads)
    find_documents_kernel(const int32_t* doc_start, int64_t tokens, int64_t seq, DocumentTables tables) {
  __shared__ int counts[kWarps];
  int64_t found = 0;
  for (int64_t base = 0; base < tokens; base += kThreads)
    found = rank_starts(doc_start, tokens, seq, base, found, tables, counts);
  if (found > tables.capacity) __trap();
  for (int64_t i = threadIdx.x; i <= tables.capacity; i += kThreads) {
    const int64_t start = i < found ? tables.starts[i] : tokens;
    const int64_t end = i + 1 < found ? tables.starts[i + 1] : tokens;
    if (i < tables.capacity) tables.lengths[i] = int32_t(end - start);
    for (int t = 0; t < kDocumentTables; ++t) tables.offsets[t][i] = start * tables.strides[t];
  }
}

__global__ void fill_lengths_kernel(int32_t* lengths, int64_t count, int32_t value) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) lengths[i] = value;
}

__global__ void split_heads_kernel(const float* from, float* to, int64_t count, int64_t seq, int64_t heads) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int64_t t = i % seq, h = i / seq % heads, b = i / seq / heads;
  to[i] = from[(b * seq + t) * heads + h];
}

}  // namespace

void find_documents(cudaStream_t stream, const int32_t* doc_start, int64_t tokens, int64_t seq,
                    const DocumentTables& tables) {
  find_documents_kernel<<<1, kThreads, 0, stream>>>(doc_start, tokens, seq, tables);
  check_launch("find_documents");
}

void fill_lengths(cudaStream_t stream, int32_t* lengths, int64_t count, int32_t value) {
  fill_lengths_kernel<<<unsigned(div_ceil<int64_t>(count, 256)), 256, 0, stream>>>(lengths, count, value);
  check_launch("fill_lengths");
}

void split_heads(cudaStream_t stream, const float* from, float* to, int64_t batch, int64_t seq,
                 int64_t heads) {
  const int64_t count = batch * seq * heads;
  split_heads_kernel<<<unsigned(div_ceil<int64_t>(count, 256)), 256, 0, stream>>>(from, to, count, seq,
                                                                                  heads);
  check_launch("split_heads");
}

}  // namespace zeno::cuda
