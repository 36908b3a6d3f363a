#include "zeno/kernels/cuda/attention_cudnn.h"

#include <algorithm>

#include "zeno/base/error.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/attention_plans.h"
#include "zeno/kernels/cuda/attention_space.h"

namespace zeno::cuda {
namespace {

// Before cuDNN 9.16 the gradient is wrong for other lengths unless they are given as lengths.
constexpr int64_t kWholeTile = 128;

// Order of the tables of offsets.
enum Table { kQkv, kOut, kStats, kForwardTables, kDout = kForwardTables, kDq, kDkv };
static_assert(kDkv + 1 == kDocumentTables);

int64_t entries_of(const AttentionShape& shape, const Tensor& doc_start, int64_t documents) {
  return doc_start ? ragged_entries(shape, documents) : 0;
}

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

// One chunk of the gradient: sequences [b, b + batch) and heads [h, h + heads).
void run_chunk(StreamRef stream, const AttentionBackward& op, const AttentionPlan& plan,
               const GradientSpace& space, const float* lse, int64_t b, int64_t h) {
  const AttentionShape& s = op.shape;
  const AttentionTensorIds& id = plan.ids;
  const int64_t d = s.head_dim, g = h / (s.heads / s.kv_heads), row = b * s.seq;
  const int64_t key = s.heads + g, value = s.heads + s.kv_heads + g;
  const int64_t query = (b * s.heads + h) * s.seq;
  run_attention_plan(stream, plan,
                     {{id.q, at(op.qkv, row, h, d)},
                      {id.k, at(op.qkv, row, key, d)},
                      {id.v, at(op.qkv, row, value, d)},
                      {id.out, at(op.out, row, h, d)},
                      {id.stats, const_cast<float*>(lse + query)},
                      {id.q_lengths, space.lengths},
                      {id.kv_lengths, space.lengths},
                      {id.first_key, op.doc_start ? op.doc_start.as<int32_t>() + row : nullptr},
                      {id.dout, at(op.dout, row, h, d)},
                      {id.dq, at(op.dqkv, row, h, d)},
                      {id.dk, at(op.dqkv, row, key, d)},
                      {id.dv, at(op.dqkv, row, value, d)},
                      {id.delta, space.delta + query},
                      {id.dq_sums, space.dq_sums}},
                     space.cudnn);
}

void dense_backward(StreamRef stream, const AttentionBackward& op, bool ordered) {
  const AttentionShape& s = op.shape;
  const GradientSpace space = dense_gradient_space(op.workspace.data, s, ordered);
  const AttentionChunk chunk = gradient_chunk(s, ordered);
  const float* lse = op.lse.as<float>();
  if (entries_of(s, op.doc_start, op.documents) > 0) {
    split_heads(native(stream), lse, space.lse, s.batch, s.seq, s.heads);
    lse = space.lse;
  }
  AttentionGraphSpec spec = spec_of(s, op.qkv, op.out);
  spec.batch = chunk.batch;
  spec.heads = chunk.heads;
  spec.kv_heads = chunk.kv_heads;
  spec.dout_stride = op.dout.stride;
  spec.dq_stride = spec.dkv_stride = op.dqkv.stride;
  spec.first_key = bool(op.doc_start);
  spec.ordered = ordered;
  if (s.seq % kWholeTile != 0) {
    spec.entries = AttentionEntries::padded;
    fill_lengths(native(stream), space.lengths, chunk.batch, int32_t(s.seq));
  }
  const AttentionPlan& plan = attention_plan(stream, AttentionPass::backward, spec, space.cudnn_bytes);
  for (int64_t b = 0; b < s.batch; b += chunk.batch) {
    for (int64_t h = 0; h < s.heads; h += chunk.heads) run_chunk(stream, op, plan, space, lse, b, h);
  }
}

// Every document its own batch entry. Grouped heads: cuDNN spreads the per-head gradients of keys and values
// by the stride of their sums, so these are kept dense beside it and copied into the packed matrix.
void ragged_backward(StreamRef stream, const AttentionBackward& op, int64_t entries) {
  const AttentionShape& s = op.shape;
  const int64_t d = s.head_dim, width = s.kv_heads * d;
  GradientSpace space = ragged_gradient_space(op.workspace.data, s, entries, op.dqkv.stride);
  ensure(op.workspace.bytes() >= space.bytes, "[attention_backward] workspace: got {} bytes, expected {}",
         op.workspace.bytes(), space.bytes);
  const bool grouped = s.heads != s.kv_heads;
  AttentionGraphSpec spec = spec_of(s, op.qkv, op.out);
  spec.batch = entries;
  spec.dout_stride = op.dout.stride;
  spec.dq_stride = op.dqkv.stride;
  spec.dkv_stride = grouped ? width : op.dqkv.stride;
  spec.entries = AttentionEntries::ragged;
  spec.ordered = false;
  const int64_t strides[] = {op.qkv.stride,  op.out.stride,  s.heads,
                             op.dout.stride, spec.dq_stride, spec.dkv_stride};
  std::copy_n(strides, kDocumentTables, space.tables.strides);
  find_documents(native(stream), op.doc_start.as<int32_t>(), s.batch * s.seq, s.seq, space.tables);
  const AttentionPlan& plan = attention_plan(stream, AttentionPass::backward, spec, space.cudnn_bytes);
  const AttentionTensorIds& id = plan.ids;
  const Tensor dkey = op.dqkv.columns(s.heads * d, width),
               dvalue = op.dqkv.columns(s.heads * d + width, width);
  int64_t* const* table = space.tables.offsets;
  run_attention_plan(stream, plan,
                     {{id.q, op.qkv.data},
                      {id.k, at(op.qkv, 0, s.heads, d)},
                      {id.v, at(op.qkv, 0, s.heads + s.kv_heads, d)},
                      {id.out, op.out.data},
                      {id.stats, op.lse.data},
                      {id.dout, op.dout.data},
                      {id.dq, op.dqkv.data},
                      {id.dk, grouped ? space.dk : dkey.data},
                      {id.dv, grouped ? space.dv : dvalue.data},
                      {id.delta, space.delta},
                      {id.dq_sums, space.dq_sums},
                      {id.dk_heads, space.dk_heads},
                      {id.dv_heads, space.dv_heads},
                      {id.q_lengths, space.tables.lengths},
                      {id.kv_lengths, space.tables.lengths},
                      {id.q_offsets, table[kQkv]},
                      {id.k_offsets, table[kQkv]},
                      {id.v_offsets, table[kQkv]},
                      {id.out_offsets, table[kOut]},
                      {id.stats_offsets, table[kStats]},
                      {id.dout_offsets, table[kDout]},
                      {id.dq_offsets, table[kDq]},
                      {id.dk_offsets, table[kDkv]},
                      {id.dv_offsets, table[kDkv]}},
                     space.cudnn);
  if (!grouped) return;
  copy_rows(native(stream), {space.dk, op.qkv.dtype, op.dqkv.rows, width}, dkey);
  copy_rows(native(stream), {space.dv, op.qkv.dtype, op.dqkv.rows, width}, dvalue);
}

}  // namespace

void cudnn_attention_forward(StreamRef stream, const AttentionForward& op) {
  const AttentionShape& s = op.shape;
  const int64_t d = s.head_dim, entries = entries_of(s, op.doc_start, op.documents);
  const std::span<std::byte> area = scratch(stream);
  Carver carve(area.data());
  AttentionGraphSpec spec = spec_of(s, op.qkv, op.out);
  spec.first_key = op.doc_start && entries == 0;
  DocumentTables tables;
  if (entries > 0) {
    spec.batch = entries;
    spec.entries = AttentionEntries::ragged;
    tables = carve_tables(carve, entries, kForwardTables);
    tables.strides[kQkv] = op.qkv.stride;
    tables.strides[kOut] = op.out.stride;
    tables.strides[kStats] = s.heads;
  }
  ensure(carve.used() <= area.size(), "[attention_forward] scratch: got {} bytes, expected {}", area.size(),
         carve.used());
  if (entries > 0) find_documents(native(stream), op.doc_start.as<int32_t>(), s.batch * s.seq, s.seq, tables);
  const AttentionPlan& plan =
      attention_plan(stream, AttentionPass::forward, spec, area.size() - carve.used());
  const AttentionTensorIds& id = plan.ids;
  run_attention_plan(stream, plan,
                     {{id.q, op.qkv.data},
                      {id.k, at(op.qkv, 0, s.heads, d)},
                      {id.v, at(op.qkv, 0, s.heads + s.kv_heads, d)},
                      {id.out, op.out.data},
                      {id.stats, op.lse.data},
                      {id.first_key, op.doc_start.data},
                      {id.q_lengths, tables.lengths},
                      {id.kv_lengths, tables.lengths},
                      {id.q_offsets, tables.offsets[kQkv]},
                      {id.k_offsets, tables.offsets[kQkv]},
                      {id.v_offsets, tables.offsets[kQkv]},
                      {id.out_offsets, tables.offsets[kOut]},
                      {id.stats_offsets, tables.offsets[kStats]}},
                     area.data() + carve.used());
}

void cudnn_attention_backward(StreamRef stream, const AttentionBackward& op, bool ordered) {
  const int64_t entries = entries_of(op.shape, op.doc_start, op.documents);
  if (entries > 0 && !ordered) return ragged_backward(stream, op, entries);
  dense_backward(stream, op, ordered);
}

size_t cudnn_attention_workspace(const AttentionShape& shape, bool ordered) {
  const size_t dense = dense_gradient_space(nullptr, shape, ordered).bytes;
  const int64_t most = most_ragged_entries(shape);
  if (ordered || most == 0) return dense;
  const int64_t stride = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
  return std::max(dense, ragged_gradient_space(nullptr, shape, most, stride).bytes);
}

}  // namespace zeno::cuda
