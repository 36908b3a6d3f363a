#include "zeno/plan/cpu_share.h"

#include <algorithm>
#include <chrono>

#include "zeno/device/buffer.h"
#include "zeno/device/copy.h"
#include "zeno/kernels/moment_cells.h"
#include "zeno/kernels/optimizer.h"

namespace zeno::plan {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

size_t bytes_of(DType dtype, int64_t count) {
  return dtype == DType::u8 ? moment_bytes(count) : size_t(count) * size_of(dtype);
}

DType moments_of(const zero::Policy& policy) { return policy.moments.value_or(policy.states); }

// Bytes of masters and moments that one element moves each way.
double state_bytes(const zero::Policy& policy) {
  constexpr int64_t kMany = 6400;
  const int moments = int(policy.moments_first) + int(policy.moments_second);
  return double(size_of(policy.states)) + moments * double(bytes_of(moments_of(policy), kMany)) / kMany;
}

// The CPU's part of the work, over and over.
class HostUpdates {
 public:
  HostUpdates(Ledger& ledger, int threads, const zero::Policy& policy)
      : stream_({.device = {}, .name = "rates", .threads = threads}) {
    const auto make = [&](DType dtype) {
      const size_t bytes = bytes_of(dtype, kCount);
      ledger.book(Tier::host, Purpose::workspace, bytes);
      buffers_.emplace_back(ledger, Tier::host, Purpose::workspace, bytes);
      fill_zero_async(stream_, buffers_.back().data(), bytes);
      return Tensor(buffers_.back().data(), dtype, 1, kCount);
    };
    op_.grad = make(policy.grad);
    op_.master = make(policy.states);
    if (policy.moments_first) op_.m = make(moments_of(policy));
    if (policy.moments_second) op_.v = make(moments_of(policy));
    op_.param = make(policy.compute);
    op_.grad_factor = &factor_;
    if (!policy.moments_second) op_.hyper.kind = OptimizerHyper::Kind::sgd;
    run();
  }
  void run() {
    optimizer_update(stream_, op_);
    stream_.synchronize();
  }
  static constexpr int64_t kCount = 16 << 20;

 private:
  float factor_ = 1;
  std::vector<Buffer> buffers_;
  Stream stream_;
  OptimizerUpdate op_;
};

}  // namespace

OffloadRates measure_offload_rates(Device device, int threads, const zero::Policy& policy) {
  constexpr size_t kBytes = size_t(128) << 20;
  constexpr int kRounds = 48;
  Ledger ledger;
  std::vector<Buffer> buffers;
  for (Tier tier : {Tier::device, Tier::device, Tier::host, Tier::host}) {
    ledger.book(tier, Purpose::workspace, kBytes);
    const Allocator pinned = [device](size_t bytes) { return allocate_pinned(device, bytes); };
    buffers.emplace_back(ledger, tier, Purpose::workspace, kBytes,
                         tier == Tier::device ? allocator_of(device) : pinned);
  }
  HostUpdates updates(ledger, threads, policy);
  const Stream up({.device = device, .name = "up"}), down({.device = device, .name = "down"});
  Event up_done, down_done;
  const auto start = Clock::now();
  for (int round = 0; round < kRounds; ++round) {
    copy_async(up, buffers[0].data(), buffers[2].data(), kBytes);
    copy_async(down, buffers[3].data(), buffers[1].data(), kBytes);
  }
  up_done.record(up);
  down_done.record(down);
  int64_t updated = 0;
  double update_seconds = 0;
  while (!up_done.done() || !down_done.done()) {
    updates.run();
    updated += HostUpdates::kCount;
    update_seconds = seconds_since(start);
  }
  up.synchronize();
  down.synchronize();
  const double link_seconds = seconds_since(start);
  return {double(kBytes) * kRounds / link_seconds, updated > 0 ? double(updated) / update_seconds : 0};
}

// What passes through the GPU has the whole step for its way, the CPU only the time from the norm to the next
// use of its parameters, and it slows down while a step is being queued: on an H200 with 16 cores a larger
// part than this makes the step wait. With x the CPU's share of n elements:
//   x n / updates = kWindow · n (states (1 - x) + 2-byte gradients or parameters x) / link
double balanced_cpu_share(const OffloadRates& rates, const zero::Policy& policy) {
  constexpr double kWindow = 0.05;  // of the time on the link
  if (rates.updates <= 0 || rates.link <= 0) return 0;
  const double states = state_bytes(policy),
               sent = double(std::max(size_of(policy.grad), size_of(policy.compute)));
  const double share = kWindow * states / (rates.link / rates.updates + kWindow * (states - sent));
  return std::clamp(share, 0.0, 1.0);
}

}  // namespace zeno::plan
