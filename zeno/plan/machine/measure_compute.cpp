#include "zeno/plan/machine/measure_compute.h"

#include <algorithm>
#include <cmath>

#include "zeno/device/copy.h"
#include "zeno/kernels/attention.h"
#include "zeno/kernels/elementwise.h"
#include "zeno/nn/linear.h"
#include "zeno/plan/machine/measure_bench.h"

namespace zeno::plan {
namespace {

// What is left of `seconds` beside the memory's: at least half, caches may hold what is small.
double beside_memory(double bytes, double memory_rate, double seconds) {
  return seconds - std::min(bytes / memory_rate, seconds / 2);
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
  nn::Work work() const {
    const Tensor &x = forward_.x, &weight = forward_.weight;
    const nn::LayerWork work = nn::work_of({.rows = double(x.rows),
                                            .in = double(x.cols),
                                            .out = double(weight.rows),
                                            .compute = x.dtype,
                                            .fp8 = bool(forward_.fp8)});
    return work.forward + work.backward;
  }

 private:
  nn::LinearForward forward_;
  nn::LinearBackward backward_;
};

struct Products {
  nn::Work work;
  double beside_memory = 0;  // seconds
  double seconds = 0;
};

// Linears of a transformer over this many rows, one after the other, until they have `weights` elements.
Products time_products(Device device, MatmulType type, const MeasureSizes& sizes, int64_t rows,
                       int64_t weights, double memory_rate, double seconds) {
  MeasureBench bench(device);
  std::vector<Linear> linears;
  Products result;
  double have = 0;
  const auto add = [&](int64_t in, int64_t out) {
    result.work += linears.emplace_back(bench, type, rows, in, out).work();
    have += double(in * out);
  };
  do {
    add(sizes.width, sizes.inner);
    // On a GPU each product takes about a second to tune, so one shape stands for all in fp32 and fp8.
    if (device.kind == Device::Kind::cpu || type == MatmulType::bits16) add(sizes.width, sizes.width);
    if (device.kind == Device::Kind::cpu) add(sizes.inner, sizes.width);
  } while (have < double(weights));
  result.seconds = bench.seconds(seconds, [&] {
    for (const Linear& linear : linears) linear.queue(bench.stream());
  });
  const double bytes = result.work.bytes + result.work.gradients * double(size_of(DType::f32));
  result.beside_memory = beside_memory(bytes, memory_rate, result.seconds);
  return result;
}

}  // namespace

ComputeRate measure_matmul(Device device, MatmulType type, const MeasureSizes& sizes, double memory_rate,
                           double packing, double seconds) {
  const Products products = time_products(device, type, sizes, sizes.tokens, 0, memory_rate, seconds);
  const double flops = products.work.flops(), packed = packing > 0 ? products.work.packed / packing : 0;
  return {flops / std::max(products.beside_memory - packed, products.seconds / 2), flops / products.seconds};
}

double measure_packing(const MeasureSizes& sizes, double memory_rate, double seconds) {
  constexpr int64_t kFew = 16;
  const Products many = time_products({}, MatmulType::fp32, sizes, sizes.tokens, 0, memory_rate, seconds / 2);
  // As much as AdamW goes through, so that caches hold no more of it.
  const Products few =
      time_products({}, MatmulType::fp32, sizes, kFew, 2 * sizes.elements, memory_rate, seconds / 2);
  const double share = few.work.flops() / many.work.flops();
  const double packed = few.work.packed - share * many.work.packed,
               time = few.beside_memory - share * many.beside_memory;
  return time > 0 ? packed / time : 0;
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
  const double time = bench.seconds(seconds, [&] {
    attention_forward(bench.stream(), forward);
    attention_backward(bench.stream(), backward);
  });
  return {flops / beside_memory(bytes, memory_rate, time), flops / time};
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
