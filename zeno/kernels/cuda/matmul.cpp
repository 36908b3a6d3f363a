#include "zeno/kernels/matmul.h"

#include <algorithm>
#include <bit>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/kernels/cuda/matmul_cache.h"
#include "zeno/kernels/cuda/matmul_output.h"
#include "zeno/kernels/cuda/matmul_plans.h"
#include "zeno/kernels/cuda/matmul_problem.h"
#include "zeno/kernels/cuda/matmul_tuner.h"

namespace zeno::cuda {
namespace {

thread_local int tunings = 0;

constexpr uint8_t kMostAlignment =
    4;  // log2: 16 bytes, the most that algorithms ask for; more would tie bits to where a tensor lies
constexpr uint8_t kBiasAlignment = 4;  // fused biases are read in 16-byte pieces

uint8_t alignment_of(const void* address) {
  return uint8_t(std::min<int>(std::countr_zero(std::bit_cast<uintptr_t>(address)), kMostAlignment));
}

int64_t depth_of(const Matmul& op) { return op.transpose_a ? op.a.rows : op.a.cols; }

void check_shapes(const Matmul& op) {
  const int64_t m = op.c.rows, n = op.c.cols, k = depth_of(op);
  const auto fits = [](const Tensor& t, int64_t rows, int64_t cols) {
    return is_float(t.dtype) && t.rows == rows && t.cols == cols && (t.stride >= cols || rows <= 1);
  };
  ensure(fits(op.c, m, n), "[matmul] C: got {} [{}, {}] with stride {}", name_of(op.c.dtype), m, n,
         op.c.stride);
  ensure(fits(op.a, op.transpose_a ? k : m, op.transpose_a ? m : k),
         "[matmul] A: got {} [{}, {}], C is [{}, {}]", name_of(op.a.dtype), op.a.rows, op.a.cols, m, n);
  ensure(fits(op.b, op.transpose_b ? n : k, op.transpose_b ? k : n),
         "[matmul] B: got {} [{}, {}], C is [{}, {}], K is {}", name_of(op.b.dtype), op.b.rows, op.b.cols, m,
         n, k);
  ensure(!op.bias || fits(op.bias, 1, n), "[matmul] bias: got {} [{}, {}], expected [1, {}]",
         name_of(op.bias.dtype), op.bias.rows, op.bias.cols, n);
  ensure(!op.residual || fits(op.residual, m, n), "[matmul] residual: got {} [{}, {}], expected [{}, {}]",
         name_of(op.residual.dtype), op.residual.rows, op.residual.cols, m, n);
  ensure(
      op.a.dtype == op.b.dtype && (op.c.dtype == op.a.dtype || op.c.dtype == DType::f32),
      "[matmul] on a GPU: got {} times {} into {}, expected operands of one type and C of that type or f32",
      name_of(op.a.dtype), name_of(op.b.dtype), name_of(op.c.dtype));
}

// Whether cuBLASLt has the form: one addend, bias and addend in the type of C.
bool fusible(const Matmul& op) {
  if (op.bias && (op.bias.dtype != op.c.dtype || alignment_of(op.bias.data) < kBiasAlignment)) return false;
  return !op.residual || (op.residual.dtype == op.c.dtype && !op.accumulate);
}

// A single row may come with any stride; the library wants one that could be.
int64_t leading(const Tensor& t) { return std::max(t.stride, t.cols); }

MatmulCall call_of(const Matmul& op) {
  MatmulCall call{
      .a = op.a.data, .b = op.b.data, .bias = op.bias.data, .residual = op.residual.data, .c = op.c.data};
  MatmulKey& key = call.key;
  key = {.m = op.c.rows,
         .n = op.c.cols,
         .k = depth_of(op),
         .lda = leading(op.a),
         .ldb = leading(op.b),
         .ldc = leading(op.c),
         .operands = op.a.dtype,
         .output = op.c.dtype,
         .transpose_a = op.transpose_a,
         .transpose_b = op.transpose_b,
         .bias = bool(op.bias),
         .align_a = alignment_of(op.a.data),
         .align_b = alignment_of(op.b.data),
         .align_c = alignment_of(op.c.data)};
  if (op.bias) key.align_bias = alignment_of(op.bias.data);
  if (op.accumulate || op.residual.data == op.c.data) {
    key.addend = Addend::output;
  } else if (op.residual) {
    key.addend = Addend::residual;
    key.ld_residual = leading(op.residual);
    key.align_residual = alignment_of(op.residual.data);
  }
  return call;
}

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "ask for capture");
  return status != cudaStreamCaptureStatusNone;
}

MatmulPlan first_choice(const MatmulDevice& device, MatmulProblem& problem) {
  constexpr int kAsked = 8;  // the first few may be of a kind that we do not take
  const auto choices = problem.choices(device.handle, kAsked, kMatmulWorkspace);
  if (choices.empty()) return {};
  return {.algorithm = std::bit_cast<std::array<uint64_t, 8>>(choices.front().algo),
          .workspace = choices.front().workspace,
          .origin = MatmulPlan::Origin::first_choice};
}

// A plan from a file, once the library has agreed to it; nothing when it has not.
std::optional<MatmulPlan> checked(const MatmulDevice& device, MatmulProblem& problem, const MatmulKey& key,
                                  MatmulPlan plan) {
  if (const auto algorithm =
          problem.accept(device.handle, std::bit_cast<cublasLtMatmulAlgo_t>(plan.algorithm))) {
    plan.workspace = algorithm->workspace;
    plan.origin = MatmulPlan::Origin::tuned;
    return device.plans->offer(key, plan);
  }
  log_warning("[matmul] ignoring the stored plan of {}: this cuBLASLt does not take it", describe(key));
  device.plans->drop(key);
  return std::nullopt;
}

bool wants_tuning(const std::optional<MatmulPlan>& plan) {
  return !plan || plan->origin == MatmulPlan::Origin::first_choice;
}

// The first time a product is seen, or the first time under a MatmulTuning.
MatmulPlan make_plan(const MatmulDevice& device, MatmulProblem& problem, StreamRef stream,
                     const MatmulKey& key, std::optional<MatmulPlan> known) {
  if (known && known->origin == MatmulPlan::Origin::loaded) known = checked(device, problem, key, *known);
  if (tunings > 0 && wants_tuning(known) && !is_captured(native(stream))) {
    check(cudaStreamSynchronize(native(stream)), "wait before tuning");
    const std::scoped_lock lock(device.plans->timing);
    known = device.plans->find(key);  // another thread may have been faster
    if (!wants_tuning(known)) return *known;
    return device.plans->offer(key, tune(device.handle, problem, stream).value_or(MatmulPlan{}));
  }
  return known ? *known : device.plans->offer(key, first_choice(device, problem));
}

// False when the library has no algorithm for this form.
bool run_product(StreamRef stream, const MatmulCall& call) {
  const MatmulDevice& device = matmul_device(stream.device().index);
  MatmulProblem problem(call);
  std::optional<MatmulPlan> plan = device.plans->find(call.key);
  if (!plan || plan->origin == MatmulPlan::Origin::loaded || (tunings > 0 && wants_tuning(plan)))
    plan = make_plan(device, problem, stream, call.key, plan);
  if (plan->origin == MatmulPlan::Origin::none) return false;
  const std::span<std::byte> workspace = scratch(stream).first(kMatmulWorkspace);
  check_lt(problem.run(device.handle, std::bit_cast<cublasLtMatmulAlgo_t>(plan->algorithm), workspace,
                       native(stream)),
           "multiply");
  return true;
}

}  // namespace

MatmulTuning::MatmulTuning() { ++tunings; }
MatmulTuning::~MatmulTuning() { --tunings; }

void matmul(StreamRef stream, const Matmul& op) {
  check_shapes(op);
  if (op.c.count() == 0) return;
  if (depth_of(op) == 0) return prepare_output(stream, op);
  if (fusible(op) && run_product(stream, call_of(op))) return;
  prepare_output(stream, op);
  Matmul product = op;
  product.bias = product.residual = {};
  product.accumulate = true;
  const MatmulCall call = call_of(product);
  ensure(run_product(stream, call), "[matmul] cuBLASLt has no algorithm for {}, row strides {}, {}, {}",
         describe(call.key), call.key.lda, call.key.ldb, call.key.ldc);
}

}  // namespace zeno::cuda
