// SwiGLU and the product before or behind it on one Hopper GPU, at the sizes of real models: two calls, one
// kernel, and the product alone, which is the limit. All under sustained load, where the power limit sets the
// clocks as it does in training; first whether both compute the same.
//   cuda_swiglu_bench [rows = 16384] [plan file]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

#include "bench/gpu_stream.h"
#include "zeno/device/buffer.h"
#include "zeno/device/copy.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/device/stream.h"
#include "zeno/kernels/cuda/fill_random.h"
#include "zeno/kernels/cuda/matmul/matmul_plans.h"
#include "zeno/kernels/cuda/matmul/matmul_timing.h"
#include "zeno/kernels/matmul.h"
#include "zeno/kernels/swiglu_product.h"

namespace zeno {
namespace {

struct Model {
  const char* name;
  int64_t width, hidden;  // C, F
};
constexpr Model kModels[] = {{"Llama-3.2-1B", 2048, 8192},
                             {"Qwen2.5-1.5B", 1536, 8960},
                             {"Qwen2.5-0.5B", 896, 4864},
                             {"Qwen2.5-7B", 3584, 18944},
                             {"Llama-3.1-8B", 4096, 14336}};

// A matrix of random bf16 values on the GPU.
class Matrix {
 public:
  Matrix(StreamRef stream, int64_t rows, int64_t cols)
      : block_(allocator_of(kGpu)(size_t(rows * cols) * sizeof(BF16))),
        view_(block_.data, DType::bf16, rows, cols) {
    cuda::fill_random(stream, view_.data, view_.bytes());
  }
  ~Matrix() { block_.release(block_.data); }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
  operator Tensor() const { return view_; }

  std::vector<BF16> values(StreamRef stream) const {
    std::vector<BF16> host(size_t(view_.count()));
    copy_async(stream, reinterpret_cast<std::byte*>(host.data()), view_.data, view_.bytes());
    stream.synchronize();
    return host;
  }

 private:
  Block block_;
  Tensor view_;
};

double difference(const std::vector<BF16>& a, const std::vector<BF16>& b) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = double(float(a[i])), y = double(float(b[i]));
    error += (x - y) * (x - y);
    norm += x * x;
  }
  return std::sqrt(error / norm);
}

class Bench {
 public:
  explicit Bench(int64_t rows) : rows_(rows) {}

  void forward(const Model& model) {
    const Matrix x(stream_, rows_, model.width), weight(stream_, 2 * model.hidden, model.width);
    const Matrix gate_up(stream_, rows_, 2 * model.hidden), y(stream_, rows_, model.hidden);
    const Matmul product{.a = x, .b = weight, .c = gate_up, .transpose_b = true};
    SwigluProduct op{.x = x, .weight = weight, .gate_up = gate_up, .y = y};
    const auto run = [&](bool fused) {
      op.fused = fused;
      swiglu_product_forward(stream_, op);
    };
    compare({model.name, "forward", product, run, [] {}, y});
  }

  // In place: the next run starts from gradients, and those soon are zeros, which take less power. So the
  // matrix is filled anew before each run, and before the product alone as well.
  void backward(const Model& model) {
    const Matrix dy(stream_, rows_, model.width), weight(stream_, model.width, model.hidden);
    const Matrix gate_up(stream_, rows_, 2 * model.hidden), dact(stream_, rows_, model.hidden);
    const Matmul product{.a = dy, .b = weight, .c = dact};
    SwigluProductBackward op{.dy = dy, .weight = weight, .gate_up = gate_up, .dact = dact};
    const auto run = [&](bool fused) {
      op.fused = fused;
      swiglu_product_backward(stream_, op);
    };
    const Tensor refilled = gate_up;
    const auto refill = [&] { cuda::fill_random(stream_, refilled.data, refilled.bytes()); };
    compare({model.name, "backward", product, run, refill, gate_up});
  }

 private:
  struct Comparison {
    const char *model, *direction;
    const Matmul& product;
    std::function<void(bool fused)> run;
    std::function<void()> before;
    const Matrix& result;
  };

  // Cleared first: what is not written shows.
  std::vector<BF16> result_of(const Comparison& c, bool fused) {
    const Tensor result = c.result;
    fill_zero_async(stream_, result.data, result.bytes());
    c.before();
    c.run(fused);
    return c.result.values(stream_);
  }

  void compare(const Comparison& c) {
    {
      const cuda::MatmulTuning tuning;
      matmul(stream_, c.product);
    }
    const double error = difference(result_of(c, false), result_of(c, true));
    const double flops = 2.0 * double(c.product.c.count()) * double(c.product.a.cols);
    const double guess = flops / 700e6;  // µs
    const auto entry = [&](std::function<void()> run) {
      return cuda::SustainedEntry{.run = [&c, run] { c.before(), run(); }, .burst = guess};
    };
    std::vector<cuda::SustainedEntry> entries{entry([&] { matmul(stream_, c.product); }),
                                              entry([&] { c.run(false); }), entry([&] { c.run(true); })};
    cuda::time_sustained(cuda::native(stream_), entries);
    const double alone = entries[0].sustained, two = entries[1].sustained, one = entries[2].sustained;
    std::printf("%-14s %-9s %9.1f %9.1f %9.1f %8.3f %8.1f %8.3f %10.2e%s\n", c.model, c.direction, alone, two,
                one, two / one, two - one, alone / one, error, error < 1e-2 ? "" : "  WRONG");
    std::fflush(stdout);
  }

  const int64_t rows_;
  GpuStream stream_;
};

}  // namespace
}  // namespace zeno

int main(int argc, char** argv) {
  const int64_t rows = argc > 1 ? std::atol(argv[1]) : 16384;
  if (argc > 2) zeno::cuda::load_matmul_plans(argv[2]);
  std::printf("%ld rows, µs under sustained load\n%-14s %-9s %9s %9s %9s %8s %8s %8s %10s\n", rows, "", "",
              "product", "two calls", "fused", "gain", "saved", "of limit", "difference");
  zeno::Bench bench(rows);
  for (const zeno::Model& model : zeno::kModels) {
    bench.forward(model);
    bench.backward(model);
  }
  if (argc > 2) zeno::cuda::save_matmul_plans(argv[2]);
  return 0;
}
