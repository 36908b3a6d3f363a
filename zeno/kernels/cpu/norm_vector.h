// Norms of one vector, forward and backward, and the sums over vectors that its weights need; shared by the
// norms of rows and of heads. With kCentered the mean is taken off (LayerNorm), without it the mean is 0
// (RMSNorm). Included once per SIMD target like simd_lanes.h.
#if defined(ZENO_KERNELS_CPU_NORM_VECTOR_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZENO_KERNELS_CPU_NORM_VECTOR_H_
#undef ZENO_KERNELS_CPU_NORM_VECTOR_H_
#else
#define ZENO_KERNELS_CPU_NORM_VECTOR_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstdint>

#include "zeno/device/tensor.h"
#include "zeno/kernels/cpu/simd_lanes.h"

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {

// Weights come in the dtype of the activations or in fp32.
template <class T, class F>
HWY_INLINE void dispatch_weight(const Tensor& weight, const F& f) {
  if (weight.dtype == DType::f32) return f.template operator()<float>();
  f.template operator()<T>();
}

template <class T>
HWY_INLINE float mean_of(const T* x, int64_t count) {
  const FloatTag d;
  auto sum = hn::Zero(d);
  for_lanes(d, count, [&](int64_t i, auto lanes) HWY_ATTR { sum = hn::Add(sum, load(d, x + i, lanes)); });
  return sum_lanes(d, sum) / float(count);
}

// Mean of (x - mean)².
template <class T>
HWY_INLINE float mean_square(const T* x, int64_t count, float mean) {
  const FloatTag d;
  auto sum = hn::Zero(d);
  const auto center = hn::Set(d, mean);
  int64_t i = 0;
  const int64_t n = int64_t(hn::Lanes(d));
  for (; i + n <= count; i += n) {
    const auto v = hn::Sub(load(d, x + i, AllLanes()), center);
    sum = hn::MulAdd(v, v, sum);
  }
  if (i < count) {
    const SomeLanes rest{size_t(count - i)};
    const auto v = hn::IfThenElseZero(hn::FirstN(d, rest.count), hn::Sub(load(d, x + i, rest), center));
    sum = hn::MulAdd(v, v, sum);
  }
  return sum_lanes(d, sum) / float(count);
}

// y = (x - mean) · rstd · weight + bias
template <class T, class W>
HWY_INLINE void normalize_into(const T* x, const W* weight, const W* bias, T* y, int64_t count, float mean,
                               float rstd) {
  const FloatTag d;
  for_lanes(d, count, [&](int64_t i, auto lanes) HWY_ATTR {
    const auto v = hn::Mul(hn::Sub(load(d, x + i, lanes), hn::Set(d, mean)), hn::Set(d, rstd));
    const auto shift = bias ? load(d, bias + i, lanes) : hn::Zero(d);
    store(d, hn::MulAdd(v, load(d, weight + i, lanes), shift), y + i, lanes);
  });
}

// Normalises x into y (which may be x) and returns 1 / standard deviation.
template <class T, class W>
HWY_INLINE float rmsnorm_vector(const T* x, const W* weight, T* y, int64_t count, float eps) {
  const float rstd = 1 / std::sqrt(mean_square(x, count, 0) + eps);
  normalize_into(x, weight, static_cast<const W*>(nullptr), y, count, 0, rstd);
  return rstd;
}

// One vector of the backward pass. With n = (x - mean) · rstd and g = dy · weight:
// dx = rstd · (g - mean(g) - n · mean(g · n)), the middle term for LayerNorm only.
template <bool kCentered, class T, class W>
HWY_INLINE void backward_vector(const T* x, const W* weight, const T* dy, const T* dresidual, T* dx,
                                int64_t count, float mean, float rstd) {
  const FloatTag d;
  auto sum_g = hn::Zero(d), sum_gn = hn::Zero(d);
  for_lanes(d, count, [&](int64_t i, auto lanes) HWY_ATTR {
    const auto g = hn::Mul(load(d, dy + i, lanes), load(d, weight + i, lanes));
    const auto n = hn::Mul(hn::Sub(load(d, x + i, lanes), hn::Set(d, mean)), hn::Set(d, rstd));
    if constexpr (kCentered) sum_g = hn::Add(sum_g, g);
    sum_gn = hn::MulAdd(g, n, sum_gn);
  });
  const auto mean_g = hn::Set(d, sum_lanes(d, sum_g) / float(count));
  const auto mean_gn = hn::Set(d, sum_lanes(d, sum_gn) / float(count));
  for_lanes(d, count, [&](int64_t i, auto lanes) HWY_ATTR {
    auto g = hn::Mul(load(d, dy + i, lanes), load(d, weight + i, lanes));
    const auto n = hn::Mul(hn::Sub(load(d, x + i, lanes), hn::Set(d, mean)), hn::Set(d, rstd));
    if constexpr (kCentered) g = hn::Sub(g, mean_g);
    g = hn::NegMulAdd(n, mean_gn, g);
    const auto along = dresidual ? load(d, dresidual + i, lanes) : hn::Zero(d);
    store(d, hn::MulAdd(g, hn::Set(d, rstd), along), dx + i, lanes);
  });
}

// Σ dy · n (weight) and Σ dy (bias) over vectors, of at most kSlice columns. Vectors are added in blocks of
// 64 and the blocks in order, so a column's sum does not depend on how columns are cut.
template <bool kCentered>
class ColumnSums {
 public:
  static constexpr int64_t kSlice = 256;

  template <class T>
  HWY_INLINE void add(const T* x, const T* dy, int64_t count, float mean, float rstd) {
    const FloatTag d;
    for_lanes(d, count, [&](int64_t i, auto lanes) HWY_ATTR {
      const auto g = load(d, dy + i, lanes);
      const auto n = hn::Mul(hn::Sub(load(d, x + i, lanes), hn::Set(d, mean)), hn::Set(d, rstd));
      hn::StoreU(hn::MulAdd(g, n, hn::LoadU(d, weight_.block + i)), d, weight_.block + i);
      if constexpr (kCentered) {
        hn::StoreU(hn::Add(g, hn::LoadU(d, bias_.block + i)), d, bias_.block + i);
      }
    });
    if (++in_block_ == 64) close_block();
  }
  // gradient[begin, begin + count) += the sums. Empty view: not wanted.
  void add_into(const Tensor& dweight, const Tensor& dbias, int64_t begin, int64_t count) {
    close_block();
    add_into(dweight, weight_, begin, count);
    if constexpr (kCentered) add_into(dbias, bias_, begin, count);
  }

 private:
  struct Sums {
    HWY_ALIGN float block[kSlice] = {};
    HWY_ALIGN float total[kSlice] = {};
  };

  HWY_INLINE void close_block() {
    close(weight_);
    if constexpr (kCentered) close(bias_);
    in_block_ = 0;
  }
  static HWY_INLINE void close(Sums& sums) {
    const FloatTag d;
    for (int64_t i = 0; i < kSlice; i += int64_t(hn::Lanes(d))) {
      hn::Store(hn::Add(hn::Load(d, sums.total + i), hn::Load(d, sums.block + i)), d, sums.total + i);
      hn::Store(hn::Zero(d), d, sums.block + i);
    }
  }
  static void add_into(const Tensor& gradient, const Sums& sums, int64_t begin, int64_t count) {
    if (!gradient) return;
    dispatch_float(gradient.dtype, [&]<class G>() HWY_ATTR {
      const FloatTag d;
      G* out = gradient.as<G>() + begin;
      for_lanes(d, count, [&](int64_t i, auto lanes) HWY_ATTR {
        store(d, hn::Add(load(d, out + i, lanes), hn::LoadU(d, sums.total + i)), out + i, lanes);
      });
    });
  }

  Sums weight_, bias_;
  int64_t in_block_ = 0;
};

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per-target include guard
