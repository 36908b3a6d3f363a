#include "zeno/plan/offload.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace zeno::plan {
namespace {

size_t beyond(size_t bytes, size_t limit) { return bytes > limit ? bytes - limit : 0; }

// The smallest of 0 .. steps for which `fits` holds; it holds for larger ones too, or `steps` is taken.
template <class Fits>
int smallest(int steps, const Fits& fits) {
  int low = 0, high = steps;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (fits(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return high;
}

}  // namespace

size_t missing_device_bytes(size_t on_device, size_t on_host, Device device, MemoryLimits limits) {
  return beyond(on_device + (device.kind == Device::Kind::cpu ? on_host : 0), limits.device);
}

size_t missing_host_bytes(size_t on_host, Device device, MemoryLimits limits) {
  return device.kind == Device::Kind::cpu ? 0 : beyond(on_host, limits.host);
}

size_t missing_device_bytes(const zero::MemoryPlan& plan, Device device, MemoryLimits limits) {
  return missing_device_bytes(plan.ledger->booked(Tier::device), plan.ledger->booked(Tier::host), device,
                              limits);
}

size_t missing_host_bytes(const zero::MemoryPlan& plan, Device device, MemoryLimits limits) {
  return missing_host_bytes(plan.ledger->booked(Tier::host), device, limits);
}

bool fits(const zero::MemoryPlan& plan, Device device, MemoryLimits limits) {
  return missing_device_bytes(plan, device, limits) == 0 && missing_host_bytes(plan, device, limits) == 0;
}

void choose_offload(const nn::LayerList& model, zero::EngineOptions& options, MemoryLimits limits,
                    bool disk) {
  constexpr int kSteps = 1024;
  zero::Offload& offload = options.policy.offload;
  const auto all_fits = [&] { return fits(zero::plan_memory(model, options), options.device, limits); };
  if (all_fits()) return;
  const auto smallest_ratio = [&] {
    offload.ratio = smallest(kSteps,
                             [&](int step) {
                               offload.ratio = double(step) / kSteps;
                               return missing_device_bytes(zero::plan_memory(model, options), options.device,
                                                           limits) == 0;
                             }) /
                    double(kSteps);
  };
  // A CPU's device memory is the host's: only a disk helps.
  const bool far = options.device.kind != Device::Kind::cpu;
  offload.optimizer = far || !disk ? Tier::host : Tier::disk;
  smallest_ratio();
  if (!disk || !far || all_fits()) return;
  offload.optimizer = Tier::disk;
  const int64_t states = zero::plan_memory(model, options).updated;
  const int on_disk = smallest(kSteps, [&](int step) {
    offload.host_states = states * (kSteps - step) / kSteps;
    return missing_host_bytes(zero::plan_memory(model, options), options.device, limits) == 0;
  });
  offload.host_states = states * (kSteps - on_disk) / kSteps;
  smallest_ratio();  // buffers for the disk have changed what is left
}

void widen_window(const nn::LayerList& model, zero::EngineOptions& options, MemoryLimits limits) {
  zero::Offload& offload = options.policy.offload;
  if (options.device.kind == Device::Kind::cpu || offload.optimizer == Tier::device) return;
  constexpr int kSteps = 32;
  const int64_t states = zero::plan_memory(model, options).updated;
  const auto window = [&](int step) { return states * step / kSteps; };
  const int narrower = smallest(kSteps, [&](int step) {
    offload.device_window = window(kSteps - step);
    return missing_device_bytes(zero::plan_memory(model, options), options.device, limits) == 0;
  });
  offload.device_window = window(kSteps - narrower);
}

std::string describe_offload(const nn::LayerList& model, const zero::EngineOptions& options) {
  const zero::MemoryPlan plan = zero::plan_memory(model, options);
  std::vector<std::string> parts;
  for (Tier tier : {Tier::host, Tier::disk}) {
    const size_t states =
        plan.ledger->booked(tier, Purpose::masters) + plan.ledger->booked(tier, Purpose::moments);
    const size_t params = plan.ledger->booked(tier, Purpose::parameters);
    if (states > 0)
      parts.push_back(fmt::format("{} of optimizer states on the {}", format_bytes(states), name_of(tier)));
    if (params > 0)
      parts.push_back(fmt::format("{} of parameters on the {}", format_bytes(params), name_of(tier)));
    const size_t activations = plan.ledger->booked(tier, Purpose::activations);
    if (activations > 0)
      parts.push_back(fmt::format("{} of activations on the {}", format_bytes(activations), name_of(tier)));
  }
  if (parts.empty()) return {};
  const int64_t window = options.policy.offload.device_window;
  if (window > 0)
    parts.push_back(fmt::format("a window of {} million elements on the device", window / 1'000'000));
  return fmt::format("offload: {}", fmt::join(parts, ", "));
}

}  // namespace zeno::plan
