#include "zeno/kernels/cuda/matmul/matmul_plans.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <iterator>
#include <optional>

#include "zeno/base/error.h"
#include "zeno/base/file.h"
#include "zeno/base/host.h"
#include "zeno/base/log.h"
#include "zeno/base/newer_version.h"
#include "zeno/kernels/cuda/matmul/matmul_algorithm.h"
#include "zeno/kernels/cuda/matmul/matmul_cache.h"

namespace zeno::cuda {
namespace {

constexpr uint64_t kMostFileBytes = uint64_t(64) << 20;

// What a file holds; nothing, with a line in the log, when there is no use in it.
std::optional<PlanSet> read_plans(const Path& path) {
  if (!file_exists(path)) return std::nullopt;
  try {
    const std::string text = read_file(path, kMostFileBytes);
    if (const int64_t version = plan_file_version(text); version > kPlanFileVersion)
      throw NewerVersion(fmt::format("[matmul] {}", path.string()), "plan file", version, kPlanFileVersion,
                         "another --cache folder");
    return parse_plan_file(text);
  } catch (const NewerVersion&) {
    throw;
  } catch (const Error& error) {
    log_warning("[matmul] ignoring the plans in {}: {}", path.string(), error.what());
    return std::nullopt;
  }
}

std::string times_of(const MatmulKey& key, const MatmulPlan& plan) {
  const auto rate = [&](double microseconds) {
    return 2e-6 * double(key.m) * double(key.n) * double(key.k) / microseconds;
  };
  if (plan.candidates == 0)
    return fmt::format(" {:>5} {:>10} {:>8} {:>12} {:>8}",
                       plan.origin == MatmulPlan::Origin::none ? "none" : "-", "", "", "", "");
  const std::string burst =
      fmt::format(" {:>5} {:>10.1f} {:>8.1f}", plan.candidates, plan.burst, rate(plan.burst));
  if (plan.sustained == 0) return fmt::format("{} {:>12} {:>8}", burst, "-", "-");
  return fmt::format("{} {:>12.1f} {:>8.1f}", burst, plan.sustained, rate(plan.sustained));
}

// Only of algorithms that the library has accepted: what a file holds may be anything.
std::string shape_of(const MatmulPlan& plan) {
  if (plan.origin != MatmulPlan::Origin::tuned && plan.origin != MatmulPlan::Origin::first_choice) return {};
  const auto algo = std::bit_cast<cublasLtMatmulAlgo_t>(plan.algorithm);
  return fmt::format(" {:>8} {:>8} {:>5}", tile_name(algo), cluster_name(algo), split_of(algo));
}

// One of every machine that shares the folder, often at the same moment: the last one's file stays, whole.
std::string own_suffix() { return fmt::format(".{}-{}.tmp", host_name(), getpid()); }

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
  size_t added = 0;
  for (const auto& [machine, list] : all_plans()) {
    for (const auto& [key, plan] : list) {
      if (plan.origin == MatmulPlan::Origin::tuned)
        added += plans[machine].insert_or_assign(key, plan).second;
      if (plan.origin == MatmulPlan::Origin::loaded) plans[machine].try_emplace(key, plan);
    }
  }
  if (plans.empty()) return;
  try {
    if (path.has_parent_path()) make_folders(path.parent_path());
    replace_file(path, format_plan_file(plans), own_suffix());
    if (added > 0) log_info("[matmul] kept {} new plans in {}", added, path.string());
  } catch (const Error& error) {
    log_warning("[matmul] the plans are not saved: {}", error.what());
  }
}

std::string describe_matmul_plans() {
  std::string text;
  auto out = std::back_inserter(text);
  for (const auto& [machine, list] : all_plans()) {
    fmt::format_to(out, "matmul plans, cuBLASLt {}\n", machine);
    fmt::format_to(out, "{:<52} {:>5} {:>10} {:>8} {:>12} {:>8} {:>8} {:>8} {:>5}\n", "product (M x N x K)",
                   "tried", "burst µs", "TFLOP/s", "sustained µs", "TFLOP/s", "tile", "cluster", "split");
    for (const auto& [key, plan] : list)
      fmt::format_to(out, "{:<52}{}{}\n", describe(key), times_of(key, plan), shape_of(plan));
  }
  return text;
}

}  // namespace zeno::cuda
