#include "zeno/kernels/cuda/matmul/matmul_cache.h"

#include <array>
#include <atomic>
#include <memory>

#include "zeno/base/error.h"
#include "zeno/device/cuda/runtime.h"

namespace zeno::cuda {
namespace {

struct Tables {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<PlanTable>> by_machine;
};

// Never destroyed: a stream of a thread that outlives main() may still look here.
Tables& tables() {
  static Tables& all = *new Tables;
  return all;
}

MatmulDevice* make_device(int index) {
  auto device = std::make_unique<MatmulDevice>();
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, index), "ask for the device's name");
  check(cudaSetDevice(index), "choose the device");
  check_lt(cublasLtCreate(&device->handle), "make a handle");
  device->plans =
      &plan_table(machine_name(cublasLtGetVersion(), properties.name, properties.multiProcessorCount));
  return device.release();
}

}  // namespace

void check_lt(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    fail(ErrorKind::internal, "[matmul] {}: {} ({})", what, cublasLtGetStatusString(status),
         cublasLtGetStatusName(status));
}

std::optional<MatmulPlan> PlanTable::find(const MatmulKey& key) const {
  const std::shared_lock lock(mutex_);
  const auto found = plans_.find(key);
  return found == plans_.end() ? std::nullopt : std::optional(found->second);
}

MatmulPlan PlanTable::offer(const MatmulKey& key, const MatmulPlan& plan) {
  const std::unique_lock lock(mutex_);
  MatmulPlan& kept = plans_.try_emplace(key, plan).first->second;
  if (plan.origin > kept.origin) kept = plan;
  return kept;
}

void PlanTable::drop(const MatmulKey& key) {
  const std::unique_lock lock(mutex_);
  plans_.erase(key);
}

std::map<MatmulKey, MatmulPlan> PlanTable::all() const {
  const std::shared_lock lock(mutex_);
  return {plans_.begin(), plans_.end()};
}

PlanTable& plan_table(const std::string& machine) {
  Tables& all = tables();
  const std::scoped_lock lock(all.mutex);
  std::unique_ptr<PlanTable>& table = all.by_machine[machine];
  if (!table) table = std::make_unique<PlanTable>();
  return *table;
}

PlanSet all_plans() {
  Tables& all = tables();
  const std::scoped_lock lock(all.mutex);
  PlanSet plans;
  for (const auto& [machine, table] : all.by_machine) plans[machine] = table->all();
  return plans;
}

const MatmulDevice& matmul_device(int index) {
  constexpr int kMost = 64;
  static std::array<std::atomic<MatmulDevice*>, kMost> devices;
  static std::mutex making;
  ensure(index >= 0 && index < kMost, "[matmul] device {}: expected less than {}", index, kMost);
  std::atomic<MatmulDevice*>& slot = devices[size_t(index)];
  if (MatmulDevice* device = slot.load(std::memory_order_acquire)) return *device;
  const std::scoped_lock lock(making);
  if (slot.load(std::memory_order_acquire) == nullptr)
    slot.store(make_device(index), std::memory_order_release);
  return *slot.load(std::memory_order_acquire);
}

}  // namespace zeno::cuda
