#include "zeno/kernels/cuda/matmul_plans.h"

#include <fmt/core.h>

#include <iterator>
#include <optional>

#include "zeno/base/error.h"
#include "zeno/base/file.h"
#include "zeno/base/log.h"
#include "zeno/kernels/cuda/matmul_cache.h"

namespace zeno::cuda {
namespace {

constexpr uint64_t kMostFileBytes = uint64_t(64) << 20;

// What a file holds; nothing, with a line in the log, when there is no use in it.
std::optional<PlanSet> read_plans(const Path& path) {
  if (!file_exists(path)) return std::nullopt;
  try {
    return parse_plan_file(read_file(path, kMostFileBytes));
  } catch (const Error& error) {
    log_warning("[matmul] ignoring the plans in {}: {}", path.string(), error.what());
    return std::nullopt;
  }
}

}  // namespace

void load_matmul_plans(const Path& path) {
  const std::optional<PlanSet> plans = read_plans(path);
  if (!plans) return;
  size_t taken = 0, foreign = 0;
  for (const auto& [machine, list] : *plans) {
    if (version_of(machine) != cublasLtGetVersion()) {
      foreign += list.size();
      continue;
    }
    PlanTable& table = plan_table(machine);
    for (const auto& [key, plan] : list) table.offer(key, plan);
    taken += list.size();
  }
  log_info("[matmul] {} tuned plans from {}", taken, path.string());
  if (foreign > 0)
    log_info("[matmul] ignoring {} plans in {}: made by another version of cuBLASLt than {}", foreign,
             path.string(), cublasLtGetVersion());
}

void save_matmul_plans(const Path& path) {
  PlanSet plans = read_plans(path).value_or(PlanSet{});
  for (const auto& [machine, list] : all_plans()) {
    for (const auto& [key, plan] : list) {
      if (plan.origin == MatmulPlan::Origin::tuned) plans[machine][key] = plan;
      if (plan.origin == MatmulPlan::Origin::loaded) plans[machine].try_emplace(key, plan);
    }
  }
  if (plans.empty()) return;
  try {
    if (path.has_parent_path()) make_folders(path.parent_path());
    replace_file(path, format_plan_file(plans));
  } catch (const Error& error) {
    log_warning("[matmul] the plans are not saved: {}", error.what());
  }
}

std::string describe_matmul_plans() {
  std::string text;
  auto out = std::back_inserter(text);
  for (const auto& [machine, list] : all_plans()) {
    fmt::format_to(out, "matmul plans, cuBLASLt {}\n", machine);
    fmt::format_to(out, "{:<52} {:>5} {:>10} {:>8}\n", "product (M x N x K)", "tried", "µs", "TFLOP/s");
    for (const auto& [key, plan] : list) {
      if (plan.candidates == 0) {
        fmt::format_to(out, "{:<52} {:>5}\n", describe(key),
                       plan.origin == MatmulPlan::Origin::none ? "none" : "-");
        continue;
      }
      const double flops = 2.0 * double(key.m) * double(key.n) * double(key.k);
      fmt::format_to(out, "{:<52} {:>5} {:>10.1f} {:>8.1f}\n", describe(key), plan.candidates,
                     plan.microseconds, flops / plan.microseconds * 1e-6);
    }
  }
  return text;
}

}  // namespace zeno::cuda
