#include "zeno/kernels/elementwise.h"

#include "zeno/base/math.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/vector.h"

namespace zeno::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kGroup = 8;  // elements per thread: 16 bytes of the 16-bit types

template <class X, class Y>
__global__ void __launch_bounds__(kThreads) cast_kernel(const X* x, Y* y, int64_t count) {
  const int64_t i = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kGroup;
  if (i + kGroup <= count) {
    float v[kGroup];
    unpack(load_once<kGroup>(x + i), v);
    store<kGroup>(y + i, pack<Y>(v));
  } else {
    for (int64_t k = i; k < count; ++k) y[k] = from_float<Y>(to_float(x[k]));
  }
}

// b may have another dtype: a 16-bit gradient added to an fp32 sum.
template <class T, class B>
__global__ void __launch_bounds__(kThreads) add_kernel(const T* a, const B* b, T* y, int64_t count) {
  const int64_t i = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kGroup;
  if (i + kGroup <= count) {
    const auto first = load<kGroup>(a + i);
    const auto second = load<kGroup>(b + i);
    float p[kGroup], q[kGroup];
    unpack(first, p);
    unpack(second, q);
#pragma unroll
    for (int k = 0; k < kGroup; ++k) p[k] += q[k];
    store<kGroup>(y + i, pack<T>(p));
  } else {
    for (int64_t k = i; k < count; ++k) y[k] = from_float<T>(to_float(a[k]) + to_float(b[k]));
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) scale_kernel(T* x, float factor, int64_t count) {
  const int64_t i = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kGroup;
  if (i + kGroup <= count) {
    float v[kGroup];
    unpack(load<kGroup>(x + i), v);
#pragma unroll
    for (int k = 0; k < kGroup; ++k) v[k] *= factor;
    store<kGroup>(x + i, pack<T>(v));
  } else {
    for (int64_t k = i; k < count; ++k) x[k] = from_float<T>(to_float(x[k]) * factor);
  }
}

// For mixed dtypes and odd addresses, where speed does not matter: one element per thread, types at run time.
struct AnyArray {
  std::byte* data;
  DType dtype;

  __device__ float get(int64_t i) const {
    if (dtype == DType::f32) return reinterpret_cast<const float*>(data)[i];
    if (dtype == DType::bf16) return to_float(reinterpret_cast<const __nv_bfloat16*>(data)[i]);
    return to_float(reinterpret_cast<const __half*>(data)[i]);
  }
  __device__ void set(int64_t i, float v) const {
    if (dtype == DType::f32) {
      reinterpret_cast<float*>(data)[i] = v;
    } else if (dtype == DType::bf16) {
      reinterpret_cast<__nv_bfloat16*>(data)[i] = from_float<__nv_bfloat16>(v);
    } else {
      reinterpret_cast<__half*>(data)[i] = from_float<__half>(v);
    }
  }
};

// y = a · factor, or y = a + b when there is a b.
__global__ void __launch_bounds__(kThreads)
    any_kernel(AnyArray a, AnyArray b, AnyArray y, float factor, int64_t count) {
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) y.set(i, b.data ? a.get(i) + b.get(i) : a.get(i) * factor);
}

void check_flat(const char* op, const Tensor& t, int64_t count) {
  ensure(t.contiguous() && t.count() == count,
         "[{}] got {} x {} with stride {}, expected {} contiguous elements", op, t.rows, t.cols, t.stride,
         count);
  ensure(is_float(t.dtype), "[{}] got {}, expected a floating type", op, name_of(t.dtype));
}

bool aligned(const Tensor& t) { return reinterpret_cast<uintptr_t>(t.data) % 16 == 0; }

uint32_t blocks_for(int64_t count, int per_thread) {
  const int64_t blocks = div_ceil<int64_t>(count, int64_t(kThreads) * per_thread);
  ensure(blocks < int64_t(1) << 31, "[elementwise] count: got {}, expected less", count);
  return uint32_t(blocks);
}

void launch_any(StreamRef stream, const Tensor& a, const Tensor& b, const Tensor& y, float factor) {
  any_kernel<<<blocks_for(y.count(), 1), kThreads, 0, native(stream)>>>({a.data, a.dtype}, {b.data, b.dtype},
                                                                        {y.data, y.dtype}, factor, y.count());
  check_launch("elementwise");
}

}  // namespace

void cast(StreamRef stream, Tensor x, Tensor y) {
  check_flat("cast", x, x.count());
  check_flat("cast", y, x.count());
  if (y.count() == 0) return;
  if (!aligned(x) || !aligned(y)) return launch_any(stream, x, Tensor(), y, 1.0f);
  dispatch_device(x.dtype, [&]<class X>() {
    dispatch_device(y.dtype, [&]<class Y>() {
      cast_kernel<<<blocks_for(y.count(), kGroup), kThreads, 0, native(stream)>>>(pointer<X>(x),
                                                                                  pointer<Y>(y), y.count());
      check_launch("cast");
    });
  });
}

void add(StreamRef stream, Tensor a, Tensor b, Tensor y) {
  check_flat("add", a, y.count());
  check_flat("add", b, y.count());
  check_flat("add", y, y.count());
  if (y.count() == 0) return;
  const bool fast = a.dtype == y.dtype && aligned(a) && aligned(b) && aligned(y);
  if (!fast) return launch_any(stream, a, b, y, 1.0f);
  dispatch_device(y.dtype, [&]<class T>() {
    dispatch_device(b.dtype, [&]<class B>() {
      add_kernel<<<blocks_for(y.count(), kGroup), kThreads, 0, native(stream)>>>(pointer<T>(a), pointer<B>(b),
                                                                                 pointer<T>(y), y.count());
      check_launch("add");
    });
  });
}

void scale(StreamRef stream, Tensor x, float factor) {
  check_flat("scale", x, x.count());
  if (x.count() == 0) return;
  if (!aligned(x)) return launch_any(stream, x, Tensor(), x, factor);
  dispatch_device(x.dtype, [&]<class T>() {
    scale_kernel<<<blocks_for(x.count(), kGroup), kThreads, 0, native(stream)>>>(pointer<T>(x), factor,
                                                                                 x.count());
    check_launch("scale");
  });
}

}  // namespace zeno::cuda
