#include "zeno/kernels/cuda/attention_space.h"

#include <algorithm>
#include <bit>

#include "zeno/base/math.h"

namespace zeno::cuda {
namespace {

constexpr int64_t kOrderedBytes = int64_t(1) << 30;  // of score gradients at a time
constexpr int64_t kCudnnSlack = int64_t(1) << 20;    // counters and descriptors cuDNN keeps in its workspace
constexpr int64_t kShortest = 64;                    // tokens; below, a fused kernel gains nothing
// Entries are launched whether used or not; beyond so many per sequence, masking costs less.
constexpr int64_t kEntriesPerSequence = 64;

// cuDNN writes whole tiles.
int64_t score_bytes(const AttentionShape& s) {
  return round_up<int64_t>(s.seq, 64) * round_up<int64_t>(s.seq, 128) * 2;
}

int64_t largest_divisor(int64_t n, int64_t limit) {
  int64_t best = 1;
  for (int64_t i = 1; i <= n; ++i) {
    if (n % i == 0 && i <= limit) best = i;
  }
  return best;
}

}  // namespace

bool cudnn_takes(const AttentionShape& shape, DType dtype) {
  return dtype != DType::f32 && shape.head_dim % 8 == 0 && shape.head_dim <= 128 && shape.seq >= kShortest;
}

int64_t ragged_entries(const AttentionShape& shape, int64_t documents) {
  // cuDNN's ragged gradient is known to be wrong for heads that are no multiple of 16.
  if (documents <= 0 || shape.head_dim % 16 != 0) return 0;
  const auto entries = int64_t(std::bit_ceil(uint64_t(documents)));
  return entries <= kEntriesPerSequence * shape.batch ? entries : 0;
}

int64_t most_ragged_entries(const AttentionShape& shape) {
  return ragged_entries(shape, 1) > 0 ? kEntriesPerSequence * shape.batch : 0;
}

AttentionChunk gradient_chunk(const AttentionShape& shape, bool ordered) {
  if (!ordered) return {shape.batch, shape.heads, shape.kv_heads};
  const int64_t heads = kOrderedBytes / score_bytes(shape), group = shape.heads / shape.kv_heads;
  if (heads >= shape.heads)
    return {largest_divisor(shape.batch, heads / shape.heads), shape.heads, shape.kv_heads};
  const int64_t kv_heads = largest_divisor(shape.kv_heads, heads / group);
  return {1, kv_heads * group, kv_heads};
}

DocumentTables carve_tables(Carver& carve, int64_t entries, int count) {
  DocumentTables tables{.capacity = entries};
  tables.starts = carve.take<int32_t>(entries + 1);
  tables.lengths = carve.take<int32_t>(entries);
  for (int i = 0; i < count; ++i) tables.offsets[i] = carve.take<int64_t>(entries + 1);
  return tables;
}

GradientSpace dense_gradient_space(std::byte* base, const AttentionShape& shape, bool ordered) {
  const int64_t queries = shape.batch * shape.heads * shape.seq;
  const AttentionChunk chunk = gradient_chunk(shape, ordered);
  Carver carve(base);
  GradientSpace space;
  space.delta = carve.take<float>(queries);
  space.lse = carve.take<float>(queries);
  space.lengths = carve.take<int32_t>(shape.batch);
  if (!ordered) space.dq_sums = carve.take<float>(queries * shape.head_dim);
  int64_t cudnn = kCudnnSlack;
  if (ordered) cudnn += chunk.batch * chunk.heads * score_bytes(shape);
  // The gradients of keys and values of every query head, at most in fp32.
  if (shape.heads != shape.kv_heads)
    cudnn += 2 * chunk.batch * chunk.heads * shape.seq * shape.head_dim * int64_t(sizeof(float));
  space.cudnn = carve.take(cudnn);
  space.cudnn_bytes = size_t(cudnn);
  space.bytes = carve.used();
  return space;
}

GradientSpace ragged_gradient_space(std::byte* base, const AttentionShape& shape, int64_t entries,
                                    int64_t dq_stride) {
  const int64_t tokens = shape.batch * shape.seq, half = 2;  // bytes of an element
  Carver carve(base);
  GradientSpace space;
  space.delta = carve.take<float>(tokens * shape.heads);
  space.dq_sums = carve.take<float>(tokens * dq_stride);
  if (shape.heads != shape.kv_heads) {
    space.dk = carve.take(tokens * shape.kv_heads * shape.head_dim * half);
    space.dv = carve.take(tokens * shape.kv_heads * shape.head_dim * half);
    space.dk_heads = carve.take(tokens * shape.heads * shape.head_dim * half);
    space.dv_heads = carve.take(tokens * shape.heads * shape.head_dim * half);
  }
  space.tables = carve_tables(carve, entries, kDocumentTables);
  space.cudnn = carve.take(kCudnnSlack);
  space.cudnn_bytes = size_t(kCudnnSlack);
  space.bytes = carve.used();
  return space;
}

}  // namespace zeno::cuda
