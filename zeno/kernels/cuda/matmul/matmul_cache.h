// The plans of this process and the cuBLASLt handle of each device. Made at first use, kept until the process
// ends. Threads: every call may come from any thread; looking up a plan is a shared lock and a hash lookup.
#pragma once

#include <cublasLt.h>

#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>

#include "zeno/kernels/cuda/matmul/matmul_plan_file.h"

namespace zeno::cuda {

// Plans of one model of GPU.
class PlanTable {
 public:
  std::optional<MatmulPlan> find(const MatmulKey& key) const;
  // Keeps the better founded of the plan there and this one: tuned or loaded over the first choice. Returns
  // it.
  MatmulPlan offer(const MatmulKey& key, const MatmulPlan& plan);
  // A loaded plan that the library does not take.
  void drop(const MatmulKey& key);
  std::map<MatmulKey, MatmulPlan> all() const;

  // Held while a plan is timed, so that the candidates have the GPU for themselves. Whoever takes it has
  // drained its stream before: work that waits for another rank must not hold it.
  std::mutex timing;

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<MatmulKey, MatmulPlan, MatmulKeyHash> plans_;
};

struct MatmulDevice {
  cublasLtHandle_t handle;
  PlanTable* plans;
};

const MatmulDevice& matmul_device(int index);
PlanTable& plan_table(const std::string& machine);
// All tables by machine.
PlanSet all_plans();

// Throws Error(internal) with the library's words.
void check_lt(cublasStatus_t status, const char* what);

}  // namespace zeno::cuda
