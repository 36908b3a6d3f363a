#include "zeno/kernels/cuda/matmul/matmul_product.h"

#include <atomic>
#include <bit>
#include <chrono>

#include "zeno/base/log.h"
#include "zeno/kernels/cuda/matmul/matmul_cache.h"
#include "zeno/kernels/cuda/matmul/matmul_plans.h"
#include "zeno/kernels/cuda/matmul/matmul_tuner.h"

namespace zeno::cuda {
namespace {

using Clock = std::chrono::steady_clock;

thread_local int tunings = 0;

// What this process has timed so far, by all threads.
std::atomic<int> timed_products = 0;
std::atomic<int64_t> timed_milliseconds = 0;
constexpr int64_t kWorthALine = 2000;  // ms

MatmulPlan timed(const MatmulDevice& device, MatmulProblem& problem, StreamRef stream) {
  const Clock::time_point begin = Clock::now();
  const MatmulPlan plan = tune(device.handle, problem, stream).value_or(MatmulPlan{});
  ++timed_products;
  timed_milliseconds += std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count();
  return plan;
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
    return device.plans->offer(key, timed(device, problem, stream));
  }
  return known ? *known : device.plans->offer(key, first_choice(device, problem));
}

}  // namespace

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

MatmulTuning::MatmulTuning() : products_(timed_products), milliseconds_(timed_milliseconds) { ++tunings; }
MatmulTuning::~MatmulTuning() {
  --tunings;
  const int products = timed_products - products_;
  const int64_t milliseconds = timed_milliseconds - milliseconds_;
  if (milliseconds >= kWorthALine)
    log_info("[matmul] timed {} products in {:.0f} s", products, double(milliseconds) / 1000);
}

}  // namespace zeno::cuda
