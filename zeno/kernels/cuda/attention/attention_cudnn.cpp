#include "zeno/kernels/cuda/attention/attention_cudnn.h"

#include <bit>

#include "zeno/base/error.h"
#include "zeno/device/cuda/memory.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/attention_space.h"
#include "zeno/kernels/cuda/attention/attention_documents.h"
#include "zeno/kernels/cuda/attention/attention_plans.h"

namespace zeno::cuda {
namespace {

// Before cuDNN 9.16 the gradient is wrong for other lengths unless they are given as lengths.
constexpr int64_t kWholeTile = 128;
// Entries are launched whether used or not; beyond this many per sequence, masking costs less.
constexpr int64_t kEntriesPerSequence = 64;

// Order of the tables of offsets.
enum Table { kQkv, kOut, kStats };
static_assert(kStats + 1 == kDocumentTables);

AttentionGraphSpec spec_of(const AttentionShape& shape, const Tensor& qkv, const Tensor& out) {
  return {.batch = shape.batch,
          .seq = shape.seq,
          .heads = shape.heads,
          .kv_heads = shape.kv_heads,
          .head_dim = shape.head_dim,
          .window = shape.window < shape.seq ? shape.window : 0,
          .scale = shape.scale,
          .type = qkv.dtype == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF,
          .qkv_stride = qkv.stride,
          .out_stride = out.stride};
}

// Element (row, head) of a packed matrix of 16-bit values.
std::byte* at(const Tensor& t, int64_t row, int64_t head, int64_t head_dim) {
  return t.data + size_t(row * t.stride + head * head_dim) * 2;
}

// Batch entries of the ragged form, a power of two; 0: documents are kept apart by a mask over whole
// sequences.
int64_t ragged_entries(const AttentionForward& op) {
  const AttentionShape& s = op.shape;
  // cuDNN has had wrong ragged results for heads that are no multiple of 16.
  if (!op.doc_start || op.documents <= 0 || s.head_dim % 16 != 0) return 0;
  if (op.lse.bytes() > kScratchBytes / 2) return 0;
  const auto entries = int64_t(std::bit_ceil(uint64_t(op.documents)));
  return entries <= kEntriesPerSequence * s.batch ? entries : 0;
}

void dense_forward(StreamRef stream, const AttentionForward& op) {
  const AttentionShape& s = op.shape;
  const std::span<std::byte> area = scratch(stream);
  AttentionGraphSpec spec = spec_of(s, op.qkv, op.out);
  spec.first_key = bool(op.doc_start);
  const AttentionPlan& plan = attention_plan(stream, AttentionPass::forward, spec, area.size());
  const AttentionTensorIds& id = plan.ids;
  run_attention_plan(stream, plan,
                     {{id.q, op.qkv.data},
                      {id.k, at(op.qkv, 0, s.heads, s.head_dim)},
                      {id.v, at(op.qkv, 0, s.heads + s.kv_heads, s.head_dim)},
                      {id.out, op.out.data},
                      {id.stats, op.lse.data},
                      {id.first_key, op.doc_start.data}},
                     area.data());
}

// Every document is a batch entry of its own, so no tile between two documents is touched. cuDNN then keeps
// the heads of a token side by side in lse.
void ragged_forward(StreamRef stream, const AttentionForward& op, int64_t entries) {
  const AttentionShape& s = op.shape;
  const std::span<std::byte> area = scratch(stream);
  Carver carve(area.data());
  float* stats = carve.take<float>(op.lse.count());
  DocumentTables tables{.capacity = entries, .strides = {op.qkv.stride, op.out.stride, s.heads}};
  tables.starts = carve.take<int32_t>(entries);
  tables.lengths = carve.take<int32_t>(entries);
  for (int64_t*& offsets : tables.offsets) offsets = carve.take<int64_t>(entries + 1);
  ensure(carve.used() <= area.size(), "[attention_forward] scratch: got {} bytes, expected {}", area.size(),
         carve.used());
  find_documents(native(stream), op.doc_start.as<int32_t>(), s.batch * s.seq, s.seq, tables);
  AttentionGraphSpec spec = spec_of(s, op.qkv, op.out);
  spec.batch = entries;
  spec.entries = AttentionEntries::ragged;
  const AttentionPlan& plan =
      attention_plan(stream, AttentionPass::forward, spec, area.size() - carve.used());
  const AttentionTensorIds& id = plan.ids;
  run_attention_plan(stream, plan,
                     {{id.q, op.qkv.data},
                      {id.k, at(op.qkv, 0, s.heads, s.head_dim)},
                      {id.v, at(op.qkv, 0, s.heads + s.kv_heads, s.head_dim)},
                      {id.out, op.out.data},
                      {id.stats, stats},
                      {id.q_lengths, tables.lengths},
                      {id.kv_lengths, tables.lengths},
                      {id.q_offsets, tables.offsets[kQkv]},
                      {id.k_offsets, tables.offsets[kQkv]},
                      {id.v_offsets, tables.offsets[kQkv]},
                      {id.out_offsets, tables.offsets[kOut]},
                      {id.stats_offsets, tables.offsets[kStats]}},
                     area.data() + carve.used());
  split_heads(native(stream), stats, op.lse.as<float>(), s.batch, s.seq, s.heads);
}

// One chunk of the gradient: sequences from b and heads from h on.
void run_chunk(StreamRef stream, const AttentionBackward& op, const AttentionPlan& plan,
               const GradientSpace& space, int64_t b, int64_t h) {
  const AttentionShape& s = op.shape;
  const AttentionTensorIds& id = plan.ids;
  const int64_t d = s.head_dim, g = h / (s.heads / s.kv_heads), row = b * s.seq;
  const int64_t key = s.heads + g, value = s.heads + s.kv_heads + g;
  run_attention_plan(stream, plan,
                     {{id.q, at(op.qkv, row, h, d)},
                      {id.k, at(op.qkv, row, key, d)},
                      {id.v, at(op.qkv, row, value, d)},
                      {id.out, at(op.out, row, h, d)},
                      {id.stats, op.lse.as<float>() + (b * s.heads + h) * s.seq},
                      {id.q_lengths, space.lengths},
                      {id.kv_lengths, space.lengths},
                      {id.first_key, op.doc_start ? op.doc_start.as<int32_t>() + row : nullptr},
                      {id.dout, at(op.dout, row, h, d)},
                      {id.dq, at(op.dqkv, row, h, d)},
                      {id.dk, at(op.dqkv, row, key, d)},
                      {id.dv, at(op.dqkv, row, value, d)},
                      {id.delta, space.delta},
                      {id.dq_sums, space.dq_sums}},
                     space.cudnn);
}

}  // namespace

void cudnn_attention_forward(StreamRef stream, const AttentionForward& op) {
  if (const int64_t entries = ragged_entries(op); entries > 0) return ragged_forward(stream, op, entries);
  dense_forward(stream, op);
}

// Documents are kept apart by a mask: cuDNN 9.14's ragged gradient ends in an illegal instruction on an H200.
void cudnn_attention_backward(StreamRef stream, const AttentionBackward& op) {
  const AttentionShape& s = op.shape;
  const GradientSpace space = gradient_space(op.workspace.data, s);
  const AttentionChunk chunk = gradient_chunk(s);
  AttentionGraphSpec spec = spec_of(s, op.qkv, op.out);
  spec.batch = chunk.batch;
  spec.heads = chunk.heads;
  spec.kv_heads = chunk.kv_heads;
  spec.dout_stride = op.dout.stride;
  spec.dqkv_stride = op.dqkv.stride;
  spec.first_key = bool(op.doc_start);
  spec.ordered = s.deterministic;
  if (s.seq % kWholeTile != 0) {
    spec.entries = AttentionEntries::padded;
    fill_lengths(native(stream), space.lengths, chunk.batch, int32_t(s.seq));
  }
  const AttentionPlan& plan = attention_plan(stream, AttentionPass::backward, spec, space.cudnn_bytes);
  for (int64_t b = 0; b < s.batch; b += chunk.batch) {
    for (int64_t h = 0; h < s.heads; h += chunk.heads) run_chunk(stream, op, plan, space, b, h);
  }
}

}  // namespace zeno::cuda
