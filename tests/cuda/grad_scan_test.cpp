#include "zeno/kernels/grad_scan.h"

#include <bit>
#include <cmath>
#include <limits>

#include "tests/cuda/parity.h"
#include "zeno/base/rng.h"

namespace zeno::cuda_tests {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};

class CudaGradScan : public Parity {
 protected:
  // A plain object on both devices, all bytes zero.
  template <class T>
  Twin object() {
    return zeros(DType::u8, 1, int64_t(sizeof(T)));
  }
  template <class T>
  static T* address(const Tensor& t) {
    return reinterpret_cast<T*>(t.data);
  }
  template <class T>
  T cpu_value(const Twin& twin) {
    cpu.synchronize();
    return *address<T>(twin.cpu);
  }
  template <class T>
  T gpu_value(const Twin& twin) {
    T value;
    copy_async(*gpu, reinterpret_cast<std::byte*>(&value), twin.gpu.data, sizeof(T));
    gpu->synchronize();
    return value;
  }
  void expect_same_scan(const std::vector<Twin>& grads) {
    const Twin result = object<GradScan>();
    for (const Twin& grad : grads) {
      grad_scan(cpu, grad.cpu, address<GradScan>(result.cpu), 17);
      grad_scan(*gpu, grad.gpu, address<GradScan>(result.gpu), 17);
    }
    const GradScan a = cpu_value<GradScan>(result), b = gpu_value<GradScan>(result);
    EXPECT_EQ(std::bit_cast<uint64_t>(b.squares.value()), std::bit_cast<uint64_t>(a.squares.value()))
        << b.squares.value() << " against " << a.squares.value();
    EXPECT_EQ(b.nonfinite, a.nonfinite);
    EXPECT_EQ(b.first_bad, a.first_bad);
  }
};

TEST_F(CudaGradScan, GivesTheBitsOfTheCpu) {
  for (DType dtype : kTypes) {
    for (int64_t count : {1, 63, 64, 65, 2047, 2048, 2049, 16384, 300000, 1 << 20}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(count));
      expect_same_scan({normal(dtype, 1, count, uint64_t(count), 0.01)});
    }
  }
}

TEST_F(CudaGradScan, AddsToWhatIsThere) {
  expect_same_scan({normal(DType::bf16, 1, 70000, 1), normal(DType::f32, 1, 70001, 2, 1e-12),
                    normal(DType::f32, 1, 5000, 3, 1e18), normal(DType::f16, 1, 64, 4)});
}

TEST_F(CudaGradScan, TakesOddAddresses) {
  for (DType dtype : kTypes) {
    const Twin whole = normal(dtype, 1, 50001, 1);
    expect_same_scan({{whole.cpu.columns(3, 49990), whole.gpu.columns(3, 49990)}});
  }
}

// Blocks of very different size side by side: some fall out of the window of the others, above and below.
TEST_F(CudaGradScan, MagnitudesMayLieFarApart) {
  for (int spread : {10, 30, 60, 120}) {
    const Twin grad = normal(DType::f32, 1, 400000, 1);
    for (int64_t i = 0; i < grad.cpu.cols; ++i) {
      const int exponent = int(random_bits(7, 1, uint64_t(i / 64)) % uint64_t(2 * spread + 1)) - spread;
      float& value = grad.cpu.as<float>()[i];
      value = i / 64 % 5 == 0 ? 0 : std::ldexp(value, exponent);
    }
    upload(grad);
    SCOPED_TRACE(spread);
    expect_same_scan({grad});
  }
}

TEST_F(CudaGradScan, CountsWhatIsNotFiniteAndLeavesItOut) {
  for (DType dtype : kTypes) {
    const Twin grad = normal(dtype, 1, 100000, 1);
    dispatch_float(dtype, [&]<class T>() {
      for (int64_t i : {0, 1, 77, 2050, 50000, 99999})
        grad.cpu.as<T>()[i] = T(std::numeric_limits<float>::infinity());
      for (int64_t i : {64, 4097, 99998}) grad.cpu.as<T>()[i] = T(std::nanf(""));
    });
    upload(grad);
    expect_same_scan({grad});
    expect_same_scan({grad, grad});
  }
}

TEST_F(CudaGradScan, SumsOfLossesAreExact) {
  for (int64_t count : {1, 31, 1000, 100003}) {
    const Twin values = normal(DType::f32, 1, count, uint64_t(count), 3);
    // Cancellation down to the last bit, and terms far below.
    if (count > 2) values.cpu.as<float>()[0] = 1e30f;
    if (count > 2) values.cpu.as<float>()[count - 1] = -1e30f;
    if (count > 2) values.cpu.as<float>()[1] = 1e-40f;
    upload(values);
    const Twin sum = object<ExactSum>();
    for (int repeat = 0; repeat < 2; ++repeat) {
      sum_exactly(cpu, values.cpu, address<ExactSum>(sum.cpu));
      sum_exactly(*gpu, values.gpu, address<ExactSum>(sum.gpu));
    }
    EXPECT_EQ(std::bit_cast<uint64_t>(gpu_value<ExactSum>(sum).value()),
              std::bit_cast<uint64_t>(cpu_value<ExactSum>(sum).value()))
        << count;
  }
}

TEST_F(CudaGradScan, ALossThatIsNotFiniteShowsInTheSum) {
  const Twin values = normal(DType::f32, 1, 500, 1);
  values.cpu.as<float>()[321] = std::numeric_limits<float>::infinity();
  upload(values);
  const Twin sum = object<ExactSum>();
  sum_exactly(*gpu, values.gpu, address<ExactSum>(sum.gpu));
  EXPECT_TRUE(std::isnan(gpu_value<ExactSum>(sum).value()));
}

}  // namespace
}  // namespace zeno::cuda_tests
