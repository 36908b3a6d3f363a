#include "zeno/kernels/activation.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeno/kernels/cpu/activation.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "zeno/kernels/cpu/simd_exp.h"
#include "zeno/kernels/cpu/simd_lanes.h"
#include "zeno/kernels/cpu/simd_normal_cdf.h"

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {

void swiglu_forward_rows(const Tensor& gate_up, const Tensor& y, int64_t begin, int64_t end) {
  dispatch_float(y.dtype, [&]<class T>() HWY_ATTR {
    const FloatTag d;
    for (int64_t r = begin; r < end; ++r) {
      const T* gates = gate_up.row<T>(r);
      const T* ups = gates + y.cols;
      T* out = y.row<T>(r);
      for_lanes(d, y.cols, [&](int64_t i, auto lanes) HWY_ATTR {
        const auto gate = load(d, gates + i, lanes);
        const auto silu = hn::Mul(gate, sigmoid_lanes(d, gate));
        store(d, hn::Mul(silu, load(d, ups + i, lanes)), out + i, lanes);
      });
    }
  });
}

void swiglu_backward_rows(const Tensor& gate_up, const Tensor& dy, const Tensor& dgate_up, const Tensor& y,
                          int64_t begin, int64_t end) {
  dispatch_float(dy.dtype, [&]<class T>() HWY_ATTR {
    const FloatTag d;
    for (int64_t r = begin; r < end; ++r) {
      const T* gates = gate_up.row<T>(r);
      const T* ups = gates + dy.cols;
      const T* grads = dy.row<T>(r);
      T* dgates = dgate_up.row<T>(r);
      T* dups = dgates + dy.cols;
      T* out = y ? y.row<T>(r) : nullptr;
      for_lanes(d, dy.cols, [&](int64_t i, auto lanes) HWY_ATTR {
        const auto gate = load(d, gates + i, lanes);
        const auto up = load(d, ups + i, lanes);
        const auto grad = load(d, grads + i, lanes);
        const auto s = sigmoid_lanes(d, gate);
        const auto silu = hn::Mul(gate, s);
        // silu' = s + silu · (1 - s)
        const auto slope = hn::MulAdd(silu, hn::Sub(hn::Set(d, 1.0f), s), s);
        store(d, hn::Mul(hn::Mul(grad, up), slope), dgates + i, lanes);
        store(d, hn::Mul(grad, silu), dups + i, lanes);
        if (out != nullptr) store(d, hn::Mul(silu, up), out + i, lanes);
      });
    }
  });
}

template <class D>
struct GeluParts {
  hn::Vec<D> weight, slope;  // y = x · weight, dy/dx = slope
};

template <Gelu kKind, class D>
HWY_INLINE GeluParts<D> gelu_parts(D d, hn::Vec<D> x) {
  if constexpr (kKind == Gelu::exact) {
    const auto normal = normal_lanes(d, x);
    return {normal.cdf, hn::MulAdd(x, normal.pdf, normal.cdf)};
  } else {
    // weight = (1 + tanh u) / 2 = sigmoid(2u) with u = √(2/π) · (x + 0.044715 x³).
    const auto two_root = hn::Set(d, 1.59576912f);
    const auto square = hn::Mul(x, x);
    const auto inner = hn::MulAdd(square, hn::Set(d, 0.044715f), hn::Set(d, 1.0f));
    const auto weight = sigmoid_lanes(d, hn::Mul(hn::Mul(two_root, x), inner));
    const auto rate = hn::Mul(two_root, hn::MulAdd(square, hn::Set(d, 3 * 0.044715f), hn::Set(d, 1.0f)));
    const auto bell = hn::Mul(weight, hn::Sub(hn::Set(d, 1.0f), weight));
    return {weight, hn::MulAdd(hn::Mul(x, rate), bell, weight)};
  }
}

template <Gelu kKind>
void gelu_forward_rows(const Tensor& x, const Tensor& y, int64_t begin, int64_t end) {
  dispatch_float(x.dtype, [&]<class T>() HWY_ATTR {
    const FloatTag d;
    for (int64_t r = begin; r < end; ++r) {
      const T* in = x.row<T>(r);
      T* out = y.row<T>(r);
      for_lanes(d, x.cols, [&](int64_t i, auto lanes) HWY_ATTR {
        const auto v = load(d, in + i, lanes);
        store(d, hn::Mul(v, gelu_parts<kKind>(d, v).weight), out + i, lanes);
      });
    }
  });
}

template <Gelu kKind>
void gelu_backward_rows(const Tensor& x, const Tensor& dy, const Tensor& dx, int64_t begin, int64_t end) {
  dispatch_float(x.dtype, [&]<class T>() HWY_ATTR {
    const FloatTag d;
    for (int64_t r = begin; r < end; ++r) {
      const T* in = x.row<T>(r);
      const T* grads = dy.row<T>(r);
      T* out = dx.row<T>(r);
      for_lanes(d, x.cols, [&](int64_t i, auto lanes) HWY_ATTR {
        const auto slope = gelu_parts<kKind>(d, load(d, in + i, lanes)).slope;
        store(d, hn::Mul(load(d, grads + i, lanes), slope), out + i, lanes);
      });
    }
  });
}

void gelu_forward_any(Gelu kind, const Tensor& x, const Tensor& y, int64_t begin, int64_t end) {
  if (kind == Gelu::exact) return gelu_forward_rows<Gelu::exact>(x, y, begin, end);
  gelu_forward_rows<Gelu::tanh>(x, y, begin, end);
}

void gelu_backward_any(Gelu kind, const Tensor& x, const Tensor& dy, const Tensor& dx, int64_t begin,
                       int64_t end) {
  if (kind == Gelu::exact) return gelu_backward_rows<Gelu::exact>(x, dy, dx, begin, end);
  gelu_backward_rows<Gelu::tanh>(x, dy, dx, begin, end);
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeno::cpu {

HWY_EXPORT(swiglu_forward_rows);
HWY_EXPORT(swiglu_backward_rows);
HWY_EXPORT(gelu_forward_any);
HWY_EXPORT(gelu_backward_any);

namespace {

void check_shape(const char* name, const Tensor& t, const Tensor& like, int64_t cols) {
  ensure(t.rows == like.rows && t.cols == cols && t.dtype == like.dtype,
         "[activation] {}: got {} [{}, {}], expected {} [{}, {}]", name, name_of(t.dtype), t.rows, t.cols,
         name_of(like.dtype), like.rows, cols);
}

int64_t rows_per_task(int64_t cols) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, cols)); }

}  // namespace

void swiglu_forward(StreamRef stream, Tensor gate_up, Tensor y) {
  check_shape("gate_up", gate_up, y, 2 * y.cols);
  stream.launch([=](Workers& workers) {
    workers.for_ranges(y.rows, rows_per_task(y.cols), [&](int64_t begin, int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(swiglu_forward_rows)(gate_up, y, begin, end);
    });
  });
}

void swiglu_backward(StreamRef stream, Tensor gate_up, Tensor dy, Tensor dgate_up, Tensor y) {
  check_shape("gate_up", gate_up, dy, 2 * dy.cols);
  check_shape("dgate_up", dgate_up, dy, 2 * dy.cols);
  if (y) check_shape("y", y, dy, dy.cols);
  stream.launch([=](Workers& workers) {
    workers.for_ranges(dy.rows, rows_per_task(dy.cols), [&](int64_t begin, int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(swiglu_backward_rows)(gate_up, dy, dgate_up, y, begin, end);
    });
  });
}

void gelu_forward(StreamRef stream, Gelu kind, Tensor x, Tensor y) {
  check_shape("y", y, x, x.cols);
  stream.launch([=](Workers& workers) {
    workers.for_ranges(x.rows, rows_per_task(x.cols), [&](int64_t begin, int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(gelu_forward_any)(kind, x, y, begin, end);
    });
  });
}

void gelu_backward(StreamRef stream, Gelu kind, Tensor x, Tensor dy, Tensor dx) {
  check_shape("dy", dy, x, x.cols);
  check_shape("dx", dx, x, x.cols);
  stream.launch([=](Workers& workers) {
    workers.for_ranges(x.rows, rows_per_task(x.cols), [&](int64_t begin, int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(gelu_backward_any)(kind, x, dy, dx, begin, end);
    });
  });
}

}  // namespace zeno::cpu
#endif  // HWY_ONCE
