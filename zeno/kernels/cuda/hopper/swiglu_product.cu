#include "zeno/kernels/cuda/swiglu_product.h"

#include <initializer_list>

#include "zeno/base/error.h"
#include "zeno/base/math.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/hopper/swiglu_jobs.h"
#include "zeno/kernels/cuda/hopper/tensor_map.h"

namespace zeno::cuda {
namespace {

constexpr int64_t kCachedWeight = int64_t(18) << 20;  // of the weight in the L2 cache, beside all else

bool are_fusible(std::initializer_list<Tensor> matrices, int64_t width) {
  for (const Tensor& t : matrices) {
    if (t && (t.dtype != DType::bf16 || !rows_aligned(t) || t.stride % kVectorColumns != 0)) return false;
  }
  return width % kVectorColumns == 0;
}

void expect_shape(const char* name, const Tensor& t, int64_t rows, int64_t cols) {
  ensure(t.dtype == DType::bf16 && t.rows == rows && t.cols == cols,
         "[swiglu product] {}: got {} [{}, {}], expected bf16 [{}, {}]", name, name_of(t.dtype), t.rows,
         t.cols, rows, cols);
}

SwigluMatrices matrices_of(const Tensor& gate_up, const Tensor& y) {
  return {.gate_up = pointer<__nv_bfloat16>(gate_up),
          .y = pointer<__nv_bfloat16>(y),
          .gate_up_stride = int(gate_up.stride),
          .y_stride = int(y.stride),
          .rows = gate_up.rows,
          .width = gate_up.cols / 2};
}

// How many clusters run at the same time: one more, and all would wait for it to the end.
template <class Job>
uint32_t clusters_at_once(const char* name) {
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {kBlocks, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = unsigned(multiprocessors() / kBlocks * kBlocks);
  config.blockDim = kProductThreads;
  config.dynamicSmemBytes = kProductSharedBytes;
  config.attrs = &cluster;
  config.numAttrs = 1;
  int clusters = 0;
  check(cudaOccupancyMaxActiveClusters(&clusters, product_kernel<Job>, &config), name);
  ensure(clusters > 0, "[{}] GPU: got no room for a cluster of {} blocks, expected one or more", name,
         kBlocks);
  return uint32_t(clusters);
}

// As many as it takes to end with the same number of tiles each: more would only draw power.
uint32_t clusters_for(uint32_t tiles, uint32_t at_once) {
  const uint32_t rounds = div_ceil(tiles, at_once);
  return div_ceil(tiles, rounds);
}

// The job has its B already.
template <class Job>
void run(StreamRef stream, Job& job, const Tensor& a, const SwigluMatrices& out, const char* name) {
  job.a = tile_map(a, kBlockRows);
  job.depth_blocks = int(div_ceil<int64_t>(a.cols, kTileDepth));
  job.order = {div_ceil<int64_t>(a.rows, kBlocks * kBlockRows), div_ceil<int64_t>(out.width, Job::kColumns),
               kTileColumns * a.cols * 2, kCachedWeight};
  job.out = out;
  check(cudaFuncSetAttribute(product_kernel<Job>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             int(kProductSharedBytes)),
        name);
  static const uint32_t at_once = clusters_at_once<Job>(name);
  const uint32_t clusters = clusters_for(job.order.count(), at_once);
  product_kernel<Job><<<clusters * kBlocks, kProductThreads, kProductSharedBytes, native(stream)>>>(job);
  check_launch(name);
}

bool apart(const Tensor& a, const Tensor& b) {
  const auto end = [](const Tensor& t) { return t.data + size_t(t.rows * t.stride) * size_of(t.dtype); };
  return end(a) <= b.data || end(b) <= a.data;
}

}  // namespace

bool run_fused(StreamRef stream, const SwigluProduct& op) {
  const int64_t rows = op.x.rows, depth = op.x.cols, width = op.y.cols;
  if (!are_fusible({op.x, op.weight, op.gate_up, op.y}, width)) return false;
  expect_shape("x", op.x, rows, depth);
  expect_shape("weight", op.weight, 2 * width, depth);
  expect_shape("gate_up", op.gate_up, rows, 2 * width);
  expect_shape("y", op.y, rows, width);
  ensure(apart(op.x, op.y), "[swiglu product] y: got memory of x, which is read to the end");
  if (op.y.count() == 0 || depth == 0) return false;
  SwigluForwardJob job;
  constexpr int kColumns = SwigluForwardJob::kColumns;
  job.gate_weight = tile_map(op.weight.slice(0, width), kColumns);
  job.up_weight = tile_map(op.weight.slice(width, width), kColumns);
  run(stream, job, op.x, matrices_of(op.gate_up, op.y), "swiglu_product_forward");
  return true;
}

bool run_fused(StreamRef stream, const SwigluProductBackward& op) {
  const int64_t rows = op.dy.rows, depth = op.dy.cols, width = op.weight.cols;
  if (!are_fusible({op.dy, op.weight, op.gate_up, op.y}, width)) return false;
  expect_shape("dy", op.dy, rows, depth);
  expect_shape("weight", op.weight, depth, width);
  expect_shape("gate_up", op.gate_up, rows, 2 * width);
  if (op.y) expect_shape("y", op.y, rows, width);
  if (op.gate_up.count() == 0 || depth == 0) return false;
  SwigluBackwardJob job;
  job.weight = tile_map(op.weight, kTileDepth);
  run(stream, job, op.dy, matrices_of(op.gate_up, op.y), "swiglu_product_backward");
  return true;
}

}  // namespace zeno::cuda
