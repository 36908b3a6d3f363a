#include "zeno/kernels/activation.h"

#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/fast_math.h"
#include "zeno/kernels/cuda/row_grid.h"
#include "zeno/kernels/cuda/swiglu.h"
#include "zeno/kernels/cuda/vector.h"

namespace zeno::cuda {
namespace {

// Whether results have 32 bits, for which functions are computed to a few ulp of fp32.
template <class T>
inline constexpr bool kWide = std::is_same_v<T, float>;

template <class T, int N>
__global__ void __launch_bounds__(kRowThreads)
    swiglu_forward_kernel(RowGrid grid, const T* gate_up, int64_t in_stride, T* y, int64_t out_stride,
                          int64_t width) {
  const auto [row, group, inside] = grid.place();
  if (!inside) return;
  const T* in = gate_up + row * in_stride + group * N;
  const auto gates = load<N>(in), ups = load<N>(in + width);
  float gate[N], up[N];
  unpack(gates, gate);
  unpack(ups, up);
  swiglu<T>(gate, up);
  store<N>(y + row * out_stride + group * N, pack<T>(up));
}

struct SwigluStrides {
  int64_t gate_up, dy, dgate_up, y;
};

// dgate_up may be gate_up, y may be dy: a thread reads all of its columns before it writes them. y null: not
// wanted.
template <class T, int N>
__global__ void __launch_bounds__(kRowThreads)
    swiglu_backward_kernel(RowGrid grid, const T* gate_up, const T* dy, T* dgate_up, T* y,
                           SwigluStrides strides, int64_t width) {
  const auto [row, group, inside] = grid.place();
  if (!inside) return;
  const T* in = gate_up + row * strides.gate_up + group * N;
  const auto gates = load<N>(in), ups = load<N>(in + width);
  const auto grads = load<N>(dy + row * strides.dy + group * N);
  float gate[N], up[N], grad[N];
  unpack(gates, gate);
  unpack(ups, up);
  unpack(grads, grad);
  swiglu_gradients<T>(gate, up, grad);
  T* out = dgate_up + row * strides.dgate_up + group * N;
  store_whole<N>(out, pack<T>(gate));
  store_whole<N>(out + width, pack<T>(up));
  if (y != nullptr) store_whole<N>(y + row * strides.y + group * N, pack<T>(grad));
}

struct GeluParts {
  float weight, slope;  // y = x · weight, dy/dx = slope
};

// Φ(-|x|) = e^(-z²) · erfcx(z) / 2 with z = |x| / √2. kWide, for fp32 results, as the CPU does it:
// (1 + 2z) · erfcx(z) is a polynomial in q = (z - 4) / (z + 4) over 0 <= z <= 10.5, and beyond that e^(-z²)
// is 0. For results of 16 bits erfcx(z) is a polynomial in t = 1 / (1 + 0.55 z) within 5.7e-5 of its value.
template <class T>
__device__ inline GeluParts exact_gelu(float x) {
  float e, tail;
  if constexpr (kWide<T>) {
    e = expf(x * x * -0.5f);
    const float far = fminf(fabsf(x) * 0.707106781f, 10.5f);
    const float q = __fdividef(far - 4.0f, far + 4.0f);
    constexpr float kErfcx[] = {-0.00110606524f, 0.00507837970f, -0.0160147783f, 0.0372124332f,
                                -0.0663606024f,  0.0937216483f,  -0.101037059f,  0.0680978788f,
                                0.0153796005f,   -0.139621132f,  1.23299512f};
    float p = -0.000632992600f;
#pragma unroll
    for (float coefficient : kErfcx) p = fmaf(p, q, coefficient);
    tail = __fdividef(p * e * 0.5f, fmaf(far, 2.0f, 1.0f));
  } else {
    e = exp2_fast(x * x * -0.721347520f);
    const float t = reciprocal(fmaf(fabsf(x), 0.55f * 0.707106781f, 1.0f));
    constexpr float kErfcx[] = {0.334203356f, 0.213858408f, 0.316441225f, 0.310072793f};
    float p = -0.174631844f;
#pragma unroll
    for (float coefficient : kErfcx) p = fmaf(p, t, coefficient);
    tail = p * (t * 0.5f) * e;
  }
  const float cdf = x < 0 ? tail : 1.0f - tail;
  return {cdf, fmaf(x, e * 0.398942280f, cdf)};
}

// weight = (1 + tanh u) / 2 = sigmoid(2u) with u = √(2/π) · (x + 0.044715 x³).
template <class T>
__device__ inline GeluParts tanh_gelu(float x) {
  constexpr float kTwoRoot = 1.59576912f;
  const float square = x * x;
  const float twice_u = kTwoRoot * x * fmaf(square, 0.044715f, 1.0f);
  const float weight = sigmoid<T>(twice_u);
  const float rate = kTwoRoot * fmaf(square, 3 * 0.044715f, 1.0f);
  return {weight, fmaf(x * rate, weight * (1.0f - weight), weight)};
}

template <Gelu kKind, class T>
__device__ inline GeluParts gelu_parts(float x) {
  if constexpr (kKind == Gelu::exact) return exact_gelu<T>(x);
  if constexpr (kKind == Gelu::tanh) return tanh_gelu<T>(x);
}

struct GeluStrides {
  int64_t x, dy, out;
};

// Forward without dy, backward with it. `out` may be x or dy.
template <Gelu kKind, class T, int N>
__global__ void __launch_bounds__(kRowThreads)
    gelu_kernel(RowGrid grid, const T* x, const T* dy, T* out, GeluStrides strides) {
  const auto [row, group, inside] = grid.place();
  if (!inside) return;
  const auto values = load<N>(x + row * strides.x + group * N);
  float v[N];
  if (dy) {
    const auto grads = load<N>(dy + row * strides.dy + group * N);
    float grad[N];
    unpack(values, v);
    unpack(grads, grad);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = grad[i] * gelu_parts<kKind, T>(v[i]).slope;
  } else {
    unpack(values, v);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] *= gelu_parts<kKind, T>(v[i]).weight;
  }
  store<N>(out + row * strides.out + group * N, pack<T>(v));
}

void check_shape(const char* name, const Tensor& t, const Tensor& like, int64_t cols) {
  ensure(t.rows == like.rows && t.cols == cols && t.dtype == like.dtype,
         "[activation] {}: got {} [{}, {}], expected {} [{}, {}]", name, name_of(t.dtype), t.rows, t.cols,
         name_of(like.dtype), like.rows, cols);
}

// Calls f.operator()<T, N>() with N = 16 bytes of T when `vector` allows it, else 1.
template <class F>
void dispatch_width(DType dtype, bool vector, const F& f) {
  dispatch_device(dtype, [&]<class T>() {
    if (vector) return f.template operator()<T, kVector<T>>();
    f.template operator()<T, 1>();
  });
}

bool vectorizable(int64_t width, std::initializer_list<Tensor> tensors) {
  for (const Tensor& t : tensors) {
    if (!rows_aligned(t) || size_t(width) * size_of(t.dtype) % 16 != 0) return false;
  }
  return true;
}

template <Gelu kKind>
void launch_gelu(StreamRef stream, const Tensor& x, const Tensor& dy, const Tensor& out) {
  dispatch_width(x.dtype, vectorizable(x.cols, {x, dy ? dy : x, out}), [&]<class T, int N>() {
    const RowGrid grid(x.rows, x.cols / N);
    if (grid.blocks == 0) return;
    gelu_kernel<kKind, T, N><<<grid.blocks, kRowThreads, 0, native(stream)>>>(
        grid, pointer<T>(x), pointer<T>(dy), pointer<T>(out), {x.stride, dy.stride, out.stride});
    check_launch("gelu");
  });
}

}  // namespace

void swiglu_forward(StreamRef stream, Tensor gate_up, Tensor y) {
  check_shape("gate_up", gate_up, y, 2 * y.cols);
  dispatch_width(y.dtype, vectorizable(y.cols, {gate_up, y}), [&]<class T, int N>() {
    const RowGrid grid(y.rows, y.cols / N);
    if (grid.blocks == 0) return;
    swiglu_forward_kernel<T, N><<<grid.blocks, kRowThreads, 0, native(stream)>>>(
        grid, pointer<T>(gate_up), gate_up.stride, pointer<T>(y), y.stride, y.cols);
    check_launch("swiglu_forward");
  });
}

void swiglu_backward(StreamRef stream, Tensor gate_up, Tensor dy, Tensor dgate_up, Tensor y) {
  check_shape("gate_up", gate_up, dy, 2 * dy.cols);
  check_shape("dgate_up", dgate_up, dy, 2 * dy.cols);
  if (y) check_shape("y", y, dy, dy.cols);
  const bool vectors = vectorizable(dy.cols, {gate_up, dy, dgate_up}) && (!y || vectorizable(dy.cols, {y}));
  dispatch_width(dy.dtype, vectors, [&]<class T, int N>() {
    const RowGrid grid(dy.rows, dy.cols / N);
    if (grid.blocks == 0) return;
    swiglu_backward_kernel<T, N><<<grid.blocks, kRowThreads, 0, native(stream)>>>(
        grid, pointer<T>(gate_up), pointer<T>(dy), pointer<T>(dgate_up), y ? pointer<T>(y) : nullptr,
        {gate_up.stride, dy.stride, dgate_up.stride, y.stride}, dy.cols);
    check_launch("swiglu_backward");
  });
}

void gelu_forward(StreamRef stream, Gelu kind, Tensor x, Tensor y) {
  check_shape("y", y, x, x.cols);
  if (kind == Gelu::exact) return launch_gelu<Gelu::exact>(stream, x, Tensor(), y);
  launch_gelu<Gelu::tanh>(stream, x, Tensor(), y);
}

void gelu_backward(StreamRef stream, Gelu kind, Tensor x, Tensor dy, Tensor dx) {
  check_shape("dy", dy, x, x.cols);
  check_shape("dx", dx, x, x.cols);
  if (kind == Gelu::exact) return launch_gelu<Gelu::exact>(stream, x, dy, dx);
  launch_gelu<Gelu::tanh>(stream, x, dy, dx);
}

}  // namespace zeno::cuda
