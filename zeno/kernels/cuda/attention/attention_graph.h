// Fused attention as cuDNN operation graphs, in the form its flash engines recognise: softmax(scale·QKᵀ)·V
// forward, and the two-pass gradient backward. Host only; used by the kernels and by a checker without a GPU.
#pragma once

#include "zeno/kernels/cuda/attention/cudnn_graph.h"

namespace zeno::cuda {

// How a query's keys are limited, besides causality and the window.
enum class AttentionEntries {
  whole,   // every batch entry has seq tokens
  padded,  // i32 lengths per entry; required if seq is not a multiple of the tile
  ragged,  // lengths and starts per entry, anywhere in the packed matrix; forward only
};

struct AttentionGraphSpec {
  int64_t batch = 0, seq = 0;  // entries, and tokens of the longest
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t window = 0;
  float scale = 0;
  cudnnDataType_t type = CUDNN_DATA_BFLOAT16;
  int64_t qkv_stride = 0, out_stride = 0;    // elements between tokens
  int64_t dout_stride = 0, dqkv_stride = 0;  // backward
  AttentionEntries entries = AttentionEntries::whole;
  bool first_key = false;  // i32 [batch, seq]: the first key each query may see
  bool ordered = true;     // backward: sums in a fixed order, through a dS matrix in cuDNN's workspace

  bool operator==(const AttentionGraphSpec&) const = default;
};

// Tensors to bind; absent ones are kNoTensor. Offsets (i64, batch + 1) count elements.
struct AttentionTensorIds {
  CudnnTensorId q, k, v, out;
  CudnnTensorId stats;  // f32 [batch, heads, seq]; ragged: [tokens, heads]
  CudnnTensorId q_lengths, kv_lengths, first_key;
  CudnnTensorId q_offsets, k_offsets, v_offsets, out_offsets, stats_offsets;
  // backward
  CudnnTensorId dout, dq, dk, dv;
  CudnnTensorId delta;    // f32 [batch, heads, seq]: Σ dO·O
  CudnnTensorId dq_sums;  // f32 [batch, heads, seq, head_dim]; only when not ordered
};

struct AttentionGraph {
  CudnnGraph graph;
  AttentionTensorIds ids{};
};

AttentionGraph attention_forward_graph(const AttentionGraphSpec& spec);
AttentionGraph attention_backward_graph(const AttentionGraphSpec& spec);

}  // namespace zeno::cuda
