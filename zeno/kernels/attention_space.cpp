#include "zeno/kernels/attention_space.h"

#include "zeno/base/math.h"

namespace zeno::cuda {
namespace {

constexpr int64_t kOrderedBytes = int64_t(1) << 30;  // of score gradients at a time
constexpr int64_t kCudnnSlack = int64_t(1) << 20;    // a margin: cuDNN 9.19 and 9.26 ask for none
constexpr int64_t kShortest = 64;                    // tokens; below, a fused kernel gains nothing
constexpr int64_t kHalf = 2;                         // bytes of bf16 and f16

// cuDNN writes whole tiles.
int64_t score_bytes(const AttentionShape& s) {
  return round_up<int64_t>(s.seq, 64) * round_up<int64_t>(s.seq, 128) * kHalf;
}

int64_t largest_divisor(int64_t n, int64_t limit) {
  int64_t best = 1;
  for (int64_t i = 1; i <= n; ++i) {
    if (n % i == 0 && i <= limit) best = i;
  }
  return best;
}

int64_t cudnn_bytes(const AttentionShape& s, const AttentionChunk& chunk) {
  int64_t bytes = kCudnnSlack;
  if (s.deterministic) bytes += chunk.batch * chunk.heads * score_bytes(s);
  // The gradients of keys and values of every query head, before those of a group are added up.
  if (s.heads != s.kv_heads) bytes += 2 * chunk.queries(round_up<int64_t>(s.seq, 128)) * s.head_dim * kHalf;
  return bytes;
}

}  // namespace

bool cudnn_takes(const AttentionShape& shape, DType dtype) {
  return dtype != DType::f32 && shape.head_dim % 8 == 0 && shape.head_dim <= 128 && shape.seq >= kShortest;
}

AttentionChunk gradient_chunk(const AttentionShape& shape) {
  if (!shape.deterministic) return {shape.batch, shape.heads, shape.kv_heads};
  const int64_t heads = kOrderedBytes / score_bytes(shape), group = shape.heads / shape.kv_heads;
  if (heads >= shape.heads)
    return {largest_divisor(shape.batch, heads / shape.heads), shape.heads, shape.kv_heads};
  const int64_t kv_heads = largest_divisor(shape.kv_heads, heads / group);
  return {1, kv_heads * group, kv_heads};
}

GradientSpace gradient_space(std::byte* base, const AttentionShape& shape) {
  const AttentionChunk chunk = gradient_chunk(shape);
  const int64_t queries = chunk.queries(shape.seq), cudnn = cudnn_bytes(shape, chunk);
  Carver carve(base);
  GradientSpace space;
  space.delta = carve.take<float>(queries);
  space.lengths = carve.take<int32_t>(chunk.batch);
  if (!shape.deterministic) space.dq_sums = carve.take<float>(queries * shape.head_dim);
  space.cudnn = carve.take(cudnn);
  space.cudnn_bytes = size_t(cudnn);
  space.bytes = carve.used();
  return space;
}

size_t attention_backward_workspace(const AttentionShape& shape, DType dtype) {
  if (cudnn_takes(shape, dtype)) return gradient_space(nullptr, shape).bytes;
  return size_t(shape.batch * shape.heads * shape.seq) * sizeof(float);  // delta
}

}  // namespace zeno::cuda
