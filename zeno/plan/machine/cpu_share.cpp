#include "zeno/plan/machine/cpu_share.h"

#include <algorithm>
#include <chrono>

#include "zeno/plan/machine/measure_host.h"

namespace zeno::plan {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

DType moments_of(const zero::Policy& policy) { return policy.moments.value_or(policy.states); }

// Bytes of masters and moments that one element moves each way.
double state_bytes(const zero::Policy& policy) {
  constexpr int64_t kMany = 6400;
  const int moments = int(policy.moments_first) + int(policy.moments_second);
  return double(size_of(policy.states)) + moments * double(update_bytes(moments_of(policy), kMany)) / kMany;
}

}  // namespace

OffloadRates measure_offload_rates(Device device, int threads, const zero::Policy& policy) {
  constexpr size_t kBytes = size_t(128) << 20;
  constexpr int64_t kUpdates = 16 << 20;
  constexpr int kRounds = 48;
  LinkCopies copies(device, kBytes);
  HostUpdates updates(device, threads, policy, kUpdates);
  const auto start = Clock::now();
  for (int round = 0; round < kRounds; ++round) copies.queue();
  int64_t updated = 0;
  double update_seconds = 0;
  while (!copies.done()) {
    updates.run();
    updated += kUpdates;
    update_seconds = seconds_since(start);
  }
  copies.wait();
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
