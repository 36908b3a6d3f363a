#include "zeno/plan/measure_compute.h"

#include <algorithm>
#include <cmath>

#include "zeno/device/copy.h"
#include "zeno/kernels/attention.h"
#include "zeno/kernels/elementwise.h"
#include "zeno/nn/linear.h"
#include "zeno/plan/measure_bench.h"

namespace zeno::plan {
namespace {

// At most half of the time is the memory's: caches may hold what is small.
ComputeRate rate_of(double flops, double bytes, double memory_rate, double seconds) {
  return {flops / (seconds - std::min(bytes / memory_rate, seconds / 2)), flops / seconds};
}

// y = x·Wᵀ and its gradients.
class Linear {
 public:
  Linear(MeasureBench& bench, MatmulType type, int64_t rows, int64_t in, int64_t out) {
    const DType dtype = type == MatmulType::fp32 ? DType::f32 : DType::bf16;
    forward_.x = bench.values(dtype, rows, in);
    forward_.weight = bench.values(dtype, out, in);
    forward_.y = bench.values(dtype, rows, out);
    if (type == MatmulType::fp8) {
      nn::Layout count;
      nn::take_fp8(count, rows, in, out);
      forward_.fp8 = bench.bytes(count.peak());
    }
    backward_ = {.x = forward_.x,
                 .dy = bench.values(dtype, rows, out),
                 .weight = forward_.weight,
                 .dx = bench.values(dtype, rows, in),
                 .dweight = bench.values(DType::f32, out, in),
                 .fp8 = forward_.fp8};
  }
  void queue(StreamRef stream) const {
    nn::linear_forward(stream, forward_);
    nn::linear_backward(stream, backward_);
  }
  double flops() const { return 3 * 2.0 * double(forward_.x.count()) * double(forward_.weight.rows); }
  // Each product moves three matrices, each once. To quantise one reads it twice and writes bytes, which the
  // product reads; dy is written in two orders at once.
  double bytes() const {
    const double x = double(forward_.x.count()), weight = double(forward_.weight.count()),
                 y = double(forward_.y.count()), wide = double(size_of(forward_.x.dtype));
    if (!forward_.fp8) return 3 * wide * (x + weight + y);
    const double quantised = 2 * wide + 2;
    return quantised * (2 * x + 2 * weight + y) + 2 * y + wide * (x + weight + y);
  }

 private:
  nn::LinearForward forward_;
  nn::LinearBackward backward_;
};

}  // namespace

ComputeRate measure_matmul(Device device, MatmulType type, const MeasureSizes& sizes, double memory_rate,
                           double seconds) {
  MeasureBench bench(device);
  std::vector<Linear> linears;
  const auto add = [&](int64_t in, int64_t out) { linears.emplace_back(bench, type, sizes.tokens, in, out); };
  add(sizes.width, sizes.inner);
  // On a GPU each product takes about a second to tune, so one shape stands for all in fp32 and fp8.
  if (device.kind == Device::Kind::cpu || type == MatmulType::bits16) add(sizes.width, sizes.width);
  if (device.kind == Device::Kind::cpu) add(sizes.inner, sizes.width);
  double flops = 0, bytes = 0;
  for (const Linear& linear : linears) {
    flops += linear.flops();
    bytes += linear.bytes();
  }
  return rate_of(flops, bytes, memory_rate, bench.seconds(seconds, [&] {
    for (const Linear& linear : linears) linear.queue(bench.stream());
  }));
}

ComputeRate measure_attention(Device device, const MeasureSizes& sizes, double memory_rate, double seconds) {
  MeasureBench bench(device);
  const int64_t tokens = sizes.tokens, width = sizes.width, heads = width / sizes.head_dim;
  const AttentionShape shape{.batch = tokens / sizes.seq,
                             .seq = sizes.seq,
                             .heads = heads,
                             .kv_heads = heads,
                             .head_dim = sizes.head_dim,
                             .scale = 1 / std::sqrt(float(sizes.head_dim))};
  const auto values = [&](int64_t cols) { return bench.values(DType::bf16, tokens, cols); };
  const AttentionForward forward{.shape = shape,
                                 .qkv = values(3 * width),
                                 .out = values(width),
                                 .lse = bench.values(DType::f32, shape.batch * heads, shape.seq)};
  const size_t workspace = attention_backward_workspace(device.kind, shape, DType::bf16);
  const AttentionBackward backward{.shape = shape,
                                   .qkv = forward.qkv,
                                   .out = forward.out,
                                   .lse = forward.lse,
                                   .dout = values(width),
                                   .dqkv = values(3 * width),
                                   .workspace = bench.bytes(workspace)};
  const double pairs = double(tokens) * double(shape.seq + 1) / 2;
  const double flops = 14 * pairs * double(width),
               bytes = 3.0 * double(forward.qkv.bytes() + forward.out.bytes());
  return rate_of(flops, bytes, memory_rate, bench.seconds(seconds, [&] {
    attention_forward(bench.stream(), forward);
    attention_backward(bench.stream(), backward);
  }));
}

double measure_copy(Device device, const MeasureSizes& sizes, double seconds) {
  MeasureBench bench(device);
  const auto count = int64_t(sizes.copy_bytes / sizeof(float));
  const Tensor from = bench.values(DType::f32, 1, count), to = bench.values(DType::f32, 1, count);
  return 2 * double(from.bytes()) /
         bench.seconds(seconds, [&] { copy_async(bench.stream(), to.data, from.data, from.bytes()); });
}

double measure_launch(Device device, double seconds) {
  MeasureBench bench(device);
  const Tensor few = bench.values(DType::f32, 1, 16);
  return bench.seconds(seconds, [&] { scale(bench.stream(), few, 0.5f); });
}

}  // namespace zeno::plan
