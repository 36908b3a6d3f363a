#include "zeno/kernels/cuda/attention/attention_graph.h"

#include <limits>

namespace zeno::cuda {
namespace {

// Both graphs share their inputs and the way scores are made and masked.
class Builder {
 public:
  explicit Builder(const AttentionGraphSpec& spec) : spec_(spec) {
    scale_ = g_.constant(spec.scale);
    if (spec.entries != AttentionEntries::whole) {
      ids_.q_lengths = lengths();
      ids_.kv_lengths = lengths();
    }
    if (spec.first_key)
      ids_.first_key =
          g_.tensor({CUDNN_DATA_INT32, {spec.batch, 1, spec.seq, 1}, {spec.seq, spec.seq, 1, 1}});
  }

  AttentionGraph forward() {
    inputs(false);
    const CudnnTensorId s = mask(scaled_scores());
    const CudnnTensorId top = column(), sum = column(), log_sum = column();
    const CudnnTensorId shifted = scores(), power = scores(), p = scores(spec_.type);
    g_.reduce(CUDNN_REDUCE_TENSOR_MAX, s, top);
    g_.pointwise(CUDNN_POINTWISE_SUB, s, top, shifted);
    g_.pointwise(CUDNN_POINTWISE_EXP, shifted, power);
    g_.reduce(CUDNN_REDUCE_TENSOR_ADD, power, sum);
    g_.pointwise(CUDNN_POINTWISE_LOG, sum, log_sum);
    g_.pointwise(CUDNN_POINTWISE_ADD, top, log_sum, ids_.stats);
    g_.pointwise(CUDNN_POINTWISE_DIV, power, sum, p);
    g_.matmul(p, ids_.v, ids_.out, {.m = ids_.q_lengths, .k = ids_.kv_lengths});
    return {std::move(g_), ids_};
  }

  AttentionGraph backward() {
    inputs(true);
    outputs();
    make_delta();
    const CudnnTensorId shifted = scores(), p = scores();
    g_.pointwise(CUDNN_POINTWISE_SUB, scaled_scores(), ids_.stats, shifted);
    g_.pointwise(CUDNN_POINTWISE_EXP, mask(shifted), p);
    key_gradient(p, ids_.dout, ids_.dv);
    const CudnnTensorId dp = scores(), centred = scores(), weighted = scores(), ds = scores();
    g_.matmul(ids_.dout, ids_.v, dp, {.m = ids_.q_lengths, .n = ids_.kv_lengths});
    g_.pointwise(CUDNN_POINTWISE_SUB, dp, ids_.delta, centred);
    g_.pointwise(CUDNN_POINTWISE_MUL, centred, p, weighted);
    g_.pointwise(CUDNN_POINTWISE_MUL, weighted, scale_, ds);
    key_gradient(ds, ids_.q, ids_.dk);
    query_gradient(ds);
    return {std::move(g_), ids_};
  }

 private:
  CudnnTensorId lengths() { return g_.tensor({CUDNN_DATA_INT32, {spec_.batch, 1, 1, 1}, {1, 1, 1, 1}}); }
  CudnnTensorId offsets() {
    if (spec_.entries != AttentionEntries::ragged) return kNoTensor;
    return g_.tensor({CUDNN_DATA_INT64, {spec_.batch + 1, 1, 1, 1}, {1, 1, 1, 1}});
  }
  // `heads` heads of every token, tokens `stride` elements apart.
  CudnnTensorSpec rows(int64_t heads, int64_t stride, CudnnTensorId offset = kNoTensor) const {
    return {spec_.type,
            {spec_.batch, heads, spec_.seq, spec_.head_dim},
            {spec_.seq * stride, spec_.head_dim, stride, 1},
            offset};
  }
  static CudnnTensorSpec transposed(CudnnTensorSpec spec) {
    std::swap(spec.dims[2], spec.dims[3]);
    std::swap(spec.strides[2], spec.strides[3]);
    return spec;
  }
  // One float per query and head. Ragged: all heads of a token side by side.
  CudnnTensorSpec per_query(CudnnTensorId offset = kNoTensor) const {
    const int64_t h = spec_.heads, s = spec_.seq;
    CudnnDims strides{h * s, s, 1, 1};
    if (offset != kNoTensor) strides = {h * s, 1, h, 1};
    return {CUDNN_DATA_FLOAT, {spec_.batch, h, s, 1}, strides, offset};
  }
  // A row per query and head, dense.
  CudnnTensorSpec all_heads(cudnnDataType_t type) const {
    const int64_t h = spec_.heads, s = spec_.seq, d = spec_.head_dim;
    return {type, {spec_.batch, h, s, d}, {h * s * d, s * d, d, 1}};
  }
  CudnnTensorId column() { return g_.intermediate(per_query()); }
  CudnnTensorId scores(cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    const int64_t h = spec_.heads, s = spec_.seq;
    return g_.intermediate({type, {spec_.batch, h, s, s}, {h * s * s, s * s, s, 1}});
  }

  // cuDNN multiplies by Kᵀ; V is as it lies forward and transposed backward.
  void inputs(bool value_transposed) {
    ids_.q_offsets = offsets();
    ids_.k_offsets = offsets();
    ids_.v_offsets = offsets();
    ids_.out_offsets = offsets();
    ids_.stats_offsets = offsets();
    ids_.q = g_.tensor(rows(spec_.heads, spec_.qkv_stride, ids_.q_offsets));
    key_ = transposed(rows(spec_.kv_heads, spec_.qkv_stride, ids_.k_offsets));
    ids_.k = g_.tensor(key_);
    const CudnnTensorSpec value = rows(spec_.kv_heads, spec_.qkv_stride, ids_.v_offsets);
    ids_.v = g_.tensor(value_transposed ? transposed(value) : value);
    ids_.out = g_.tensor(rows(spec_.heads, spec_.out_stride, ids_.out_offsets));
    ids_.stats = g_.tensor(per_query(ids_.stats_offsets));
  }
  void outputs() {
    ids_.dout = g_.tensor(rows(spec_.heads, spec_.dout_stride));
    ids_.dq = g_.tensor(rows(spec_.heads, spec_.dqkv_stride));
    ids_.dk = g_.tensor(rows(spec_.kv_heads, spec_.dqkv_stride));
    ids_.dv = g_.tensor(rows(spec_.kv_heads, spec_.dqkv_stride));
  }

  CudnnTensorId scaled_scores() {
    const CudnnTensorId product = scores(), scaled = scores();
    g_.matmul(ids_.q, ids_.k, product, {.m = ids_.q_lengths, .n = ids_.kv_lengths});
    g_.pointwise(CUDNN_POINTWISE_MUL, product, scale_, scaled);
    return scaled;
  }

  CudnnTensorId index(int64_t axis, CudnnTensorId like) {
    const CudnnTensorId result = scores(CUDNN_DATA_INT32);
    g_.index(axis, like, result, CUDNN_DATA_INT32);
    return result;
  }
  CudnnTensorId compare(cudnnPointwiseMode_t mode, CudnnTensorId a, CudnnTensorId b) {
    const CudnnTensorId result = scores(CUDNN_DATA_BOOLEAN);
    g_.pointwise(mode, a, b, result, CUDNN_DATA_BOOLEAN);
    return result;
  }
  CudnnTensorId keep(CudnnTensorId visible, CudnnTensorId s) {
    const CudnnTensorId result = scores();
    g_.select(visible, s, g_.constant(-std::numeric_limits<float>::infinity()), result);
    return result;
  }

  // -inf where a query must not look. The engines know these very forms and skip the tiles they hide.
  CudnnTensorId mask(CudnnTensorId s) {
    if (spec_.entries != AttentionEntries::whole) {
      const CudnnTensorId row = index(2, s), column = index(3, s);
      const CudnnTensorId row_inside = compare(CUDNN_POINTWISE_CMP_LT, row, ids_.q_lengths);
      const CudnnTensorId column_inside = compare(CUDNN_POINTWISE_CMP_LT, column, ids_.kv_lengths);
      s = keep(compare(CUDNN_POINTWISE_LOGICAL_AND, row_inside, column_inside), s);
    }
    if (spec_.first_key) s = keep(compare(CUDNN_POINTWISE_CMP_GE, index(3, s), ids_.first_key), s);
    {
      const CudnnTensorId row = index(2, s), column = index(3, s);
      s = keep(compare(CUDNN_POINTWISE_CMP_GE, row, column), s);
    }
    if (spec_.window > 0) {
      const CudnnTensorId row = index(2, s), column = index(3, s), end = scores();
      g_.pointwise(CUDNN_POINTWISE_ADD, column, g_.constant(float(spec_.window)), end);
      s = keep(compare(CUDNN_POINTWISE_CMP_GT, end, row), s);
    }
    return s;
  }

  void make_delta() {
    const CudnnTensorId product = g_.intermediate(all_heads(CUDNN_DATA_FLOAT)), sum = column();
    ids_.delta = g_.tensor(per_query());
    g_.pointwise(CUDNN_POINTWISE_MUL, ids_.dout, ids_.out, product);
    g_.reduce(CUDNN_REDUCE_TENSOR_ADD, product, sum);
    g_.pointwise(CUDNN_POINTWISE_MUL, sum, g_.constant(1), ids_.delta);
  }

  // gradient = weightsᵀ·rows, summed over the query heads that share a key head.
  void key_gradient(CudnnTensorId weights, CudnnTensorId rows_of, CudnnTensorId gradient) {
    const int64_t h = spec_.heads, s = spec_.seq;
    const CudnnTensorId turned =
        g_.intermediate({spec_.type, {spec_.batch, h, s, s}, {h * s * s, s * s, 1, s}});
    g_.reshape(weights, turned);
    const CudnnLengths lengths{.m = ids_.kv_lengths, .k = ids_.q_lengths};
    if (h == spec_.kv_heads) {
      g_.matmul(turned, rows_of, gradient, lengths);
      return;
    }
    const CudnnTensorId whole = g_.intermediate(all_heads(spec_.type));
    g_.matmul(turned, rows_of, whole, lengths);
    g_.reduce(CUDNN_REDUCE_TENSOR_ADD, whole, gradient);
  }

  void query_gradient(CudnnTensorId ds) {
    const CudnnTensorId key = g_.intermediate(transposed(key_));
    g_.reshape(ids_.k, key);
    const CudnnLengths lengths{.m = ids_.q_lengths, .k = ids_.kv_lengths};
    if (spec_.ordered) {
      g_.matmul(ds, key, ids_.dq, lengths);
      return;
    }
    ids_.dq_sums = g_.tensor(all_heads(CUDNN_DATA_FLOAT));
    g_.matmul(ds, key, ids_.dq_sums, lengths);
    g_.pointwise(CUDNN_POINTWISE_IDENTITY, ids_.dq_sums, ids_.dq);
  }

  const AttentionGraphSpec spec_;
  CudnnGraph g_;
  AttentionTensorIds ids_{};
  CudnnTensorSpec key_;
  CudnnTensorId scale_;
};

}  // namespace

AttentionGraph attention_forward_graph(const AttentionGraphSpec& spec) { return Builder(spec).forward(); }
AttentionGraph attention_backward_graph(const AttentionGraphSpec& spec) { return Builder(spec).backward(); }

}  // namespace zeno::cuda
