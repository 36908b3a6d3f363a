#include "zeno/kernels/noise.h"

#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/row_grid.h"
#include "zeno/kernels/cuda/vector.h"
#include "zeno/kernels/shape_checks.h"

namespace zeno::cuda {
namespace {

constexpr int kGroup = 8;  // elements per thread: 16 bytes of the 16-bit types

struct NoiseArgs {
  const int64_t* key;
  uint64_t site;
  int64_t first_row;

  explicit NoiseArgs(const NoiseSource& noise)
      : key(noise.key.as<int64_t>()), site(noise.site), first_row(noise.first_row) {}

  __device__ uint64_t row_key(int64_t row) const { return noise_key(uint64_t(*key), site, first_row + row); }
};

struct DropoutArgs {
  int64_t x_stride, y_stride;
  float factor;
  uint32_t threshold;
  bool accumulate;
};

template <class T, int N>
__global__ void __launch_bounds__(kRowThreads)
    dropout_kernel(RowGrid grid, const T* x, T* y, NoiseArgs noise, DropoutArgs a) {
  const auto [row, group, inside] = grid.place();
  if (!inside) return;
  const uint64_t key = noise.row_key(row);
  T* const to = y + row * a.y_stride + group * N;
  float v[N], sum[N];
  unpack(load<N>(x + row * a.x_stride + group * N), v);
  if (a.accumulate) unpack(load<N>(to), sum);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const bool keep = random_bits32(key, uint32_t(group * N + i)) >= a.threshold;
    v[i] = keep ? v[i] * a.factor : 0.0f;
    if (a.accumulate) v[i] = sum[i] + v[i];
  }
  store<N>(to, pack<T>(v));
}

template <class T, int N>
__global__ void __launch_bounds__(kRowThreads)
    noise_kernel(RowGrid grid, T* y, int64_t stride, NoiseArgs noise, float size) {
  const auto [row, group, inside] = grid.place();
  if (!inside) return;
  const uint64_t key = noise.row_key(row);
  T* const at = y + row * stride + group * N;
  float v[N];
  unpack(load<N>(at), v);
#pragma unroll
  for (int i = 0; i < N; ++i) v[i] += noise_unit(random_bits32(key, uint32_t(group * N + i))) * size;
  store<N>(at, pack<T>(v));
}

template <class T, int N>
void launch_dropout(StreamRef stream, const Dropout& op) {
  const RowGrid grid(op.x.rows, op.x.cols / N);
  if (grid.blocks == 0) return;
  const DropoutArgs a{.x_stride = op.x.stride,
                      .y_stride = op.y.stride,
                      .factor = 1.0f / (1.0f - op.probability),
                      .threshold = dropout_threshold(op.probability),
                      .accumulate = op.accumulate};
  dropout_kernel<T, N><<<grid.blocks, kRowThreads, 0, native(stream)>>>(
      grid, pointer<T>(op.x), pointer<T>(op.y), NoiseArgs(op.noise), a);
  check_launch("dropout");
}

template <class T, int N>
void launch_noise(StreamRef stream, const UniformNoise& op) {
  const RowGrid grid(op.y.rows, op.y.cols / N);
  if (grid.blocks == 0) return;
  noise_kernel<T, N><<<grid.blocks, kRowThreads, 0, native(stream)>>>(grid, pointer<T>(op.y), op.y.stride,
                                                                      NoiseArgs(op.noise), op.size);
  check_launch("add_uniform_noise");
}

}  // namespace

void dropout(StreamRef stream, const Dropout& op) {
  check_shapes(op);
  const bool vector = op.x.cols % kGroup == 0 && rows_aligned(op.x) && rows_aligned(op.y);
  dispatch_device(op.x.dtype, [&]<class T>() {
    if (vector) return launch_dropout<T, kGroup>(stream, op);
    launch_dropout<T, 1>(stream, op);
  });
}

void add_uniform_noise(StreamRef stream, const UniformNoise& op) {
  check_shapes(op);
  const bool vector = op.y.cols % kGroup == 0 && rows_aligned(op.y);
  dispatch_device(op.y.dtype, [&]<class T>() {
    if (vector) return launch_noise<T, kGroup>(stream, op);
    launch_noise<T, 1>(stream, op);
  });
}

}  // namespace zeno::cuda
