#include "zeno/kernels/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeno/kernels/cpu/elementwise.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "zeno/kernels/cpu/simd_lanes.h"

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {

template <class X, class Y>
HWY_INLINE void cast_span(const X* x, Y* y, int64_t count, bool streaming) {
  const FloatTag d;
  if (!streaming || !streams_well(y)) {
    for_lanes(d, count,
              [&](int64_t i, auto lanes) HWY_ATTR { store(d, load(d, x + i, lanes), y + i, lanes); });
    return;
  }
  for_lanes(d, count, [&](int64_t i, auto lanes) HWY_ATTR {
    hwy::Prefetch(reinterpret_cast<const std::byte*>(x + i) + 2048);
    stream(d, load(d, x + i, lanes), y + i, lanes);
  });
  hwy::FlushStream();
}

void cast_range(const Tensor& x, const Tensor& y, int64_t begin, int64_t end) {
  const bool streaming = y.bytes() > size_t(32) << 20;  // larger than what a cache keeps for the next reader
  dispatch_float(x.dtype, [&]<class X>() HWY_ATTR {
    dispatch_float(y.dtype, [&]<class Y>() HWY_ATTR {
      cast_span(x.as<X>() + begin, y.as<Y>() + begin, end - begin, streaming);
    });
  });
}

template <class A, class B, class Y>
HWY_INLINE void add_span(const A* a, const B* b, Y* y, int64_t count) {
  const FloatTag d;
  for_lanes(d, count, [&](int64_t i, auto lanes) HWY_ATTR {
    store(d, hn::Add(load(d, a + i, lanes), load(d, b + i, lanes)), y + i, lanes);
  });
}

void add_range(const Tensor& a, const Tensor& b, const Tensor& y, int64_t begin, int64_t end) {
  dispatch_float(a.dtype, [&]<class A>() HWY_ATTR {
    dispatch_float(b.dtype, [&]<class B>() HWY_ATTR {
      dispatch_float(y.dtype, [&]<class Y>() HWY_ATTR {
        add_span(a.as<A>() + begin, b.as<B>() + begin, y.as<Y>() + begin, end - begin);
      });
    });
  });
}

void scale_range(const Tensor& x, float factor, int64_t begin, int64_t end) {
  dispatch_float(x.dtype, [&]<class X>() HWY_ATTR {
    const FloatTag d;
    X* p = x.as<X>() + begin;
    for_lanes(d, end - begin, [&](int64_t i, auto lanes) HWY_ATTR {
      store(d, hn::Mul(load(d, p + i, lanes), hn::Set(d, factor)), p + i, lanes);
    });
  });
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeno::cpu {

HWY_EXPORT(cast_range);
HWY_EXPORT(add_range);
HWY_EXPORT(scale_range);

namespace {

constexpr int64_t kGrain = 32768;  // elements per task

void check_flat(const char* op, const Tensor& t, int64_t count) {
  ensure(t.contiguous() && t.count() == count,
         "[{}] got {} x {} with stride {}, expected {} contiguous elements", op, t.rows, t.cols, t.stride,
         count);
  ensure(is_float(t.dtype), "[{}] got {}, expected a floating type", op, name_of(t.dtype));
}

}  // namespace

void cast(StreamRef stream, Tensor x, Tensor y) {
  check_flat("cast", x, x.count());
  check_flat("cast", y, x.count());
  stream.launch([=](Workers& workers) {
    workers.for_ranges(x.count(), kGrain, [&](int64_t begin, int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(cast_range)(x, y, begin, end);
    });
  });
}

void add(StreamRef stream, Tensor a, Tensor b, Tensor y) {
  check_flat("add", a, y.count());
  check_flat("add", b, y.count());
  check_flat("add", y, y.count());
  stream.launch([=](Workers& workers) {
    workers.for_ranges(y.count(), kGrain, [&](int64_t begin, int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(add_range)(a, b, y, begin, end);
    });
  });
}

void scale(StreamRef stream, Tensor x, float factor) {
  check_flat("scale", x, x.count());
  stream.launch([=](Workers& workers) {
    workers.for_ranges(x.count(), kGrain, [&](int64_t begin, int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(scale_range)(x, factor, begin, end);
    });
  });
}

}  // namespace zeno::cpu
#endif  // HWY_ONCE
