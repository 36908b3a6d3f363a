// Files and tables of plans; nothing here needs a GPU.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/support/temp_dir.h"
#include "zeno/base/file.h"
#include "zeno/base/newer_version.h"
#include "zeno/kernels/cuda/matmul/matmul_cache.h"
#include "zeno/kernels/cuda/matmul/matmul_plan_file.h"
#include "zeno/kernels/cuda/matmul/matmul_plans.h"

namespace zeno::cuda_tests {
namespace {

using cuda::MatmulKey;
using cuda::MatmulPlan;
using cuda::PlanSet;

MatmulKey some_key(int64_t m) {
  return {.m = m,
          .n = 3072,
          .k = 2048,
          .lda = 2048,
          .ldb = 2056,
          .ldc = 3072,
          .ld_residual = 4096,
          .a_type = cuda::OperandType::bf16,
          .b_type = cuda::OperandType::bf16,
          .output = DType::f32,
          .transpose_a = true,
          .bias = true,
          .addend = cuda::Addend::residual,
          .align_a = 8,
          .align_b = 4,
          .align_c = 1,
          .align_bias = 5,
          .align_residual = 2};
}

MatmulPlan some_plan(uint64_t seed) {
  MatmulPlan plan{.workspace = 1u << 25,
                  .origin = MatmulPlan::Origin::tuned,
                  .candidates = 21,
                  .burst = 1234.5,
                  .sustained = 1345.25};
  for (size_t i = 0; i < plan.algorithm.size(); ++i) plan.algorithm[i] = (seed + i) * 0x9e3779b97f4a7c15u;
  return plan;
}

std::string machine(const char* device, size_t version = cublasLtGetVersion()) {
  return cuda::machine_name(version, device, 132);
}

TEST(MatmulPlanFile, RoundTrip) {
  const PlanSet plans{{machine("A"), {{some_key(1), some_plan(1)}, {some_key(2), some_plan(2)}}},
                      {machine("B", 7), {{some_key(1), some_plan(3)}}}};
  const PlanSet again = cuda::parse_plan_file(cuda::format_plan_file(plans));
  ASSERT_EQ(again.size(), 2u);
  for (const auto& [name, list] : plans) {
    ASSERT_EQ(again.at(name).size(), list.size());
    for (const auto& [key, plan] : list) {
      const MatmulPlan& read = again.at(name).at(key);
      EXPECT_EQ(read.algorithm, plan.algorithm);
      EXPECT_EQ(read.workspace, plan.workspace);
      EXPECT_EQ(read.candidates, plan.candidates);
      EXPECT_DOUBLE_EQ(read.burst, plan.burst);
      EXPECT_DOUBLE_EQ(read.sustained, plan.sustained);
      EXPECT_EQ(read.origin, MatmulPlan::Origin::loaded);
    }
  }
  EXPECT_EQ(cuda::version_of(machine("B", 7)), 7u);
}

TEST(MatmulPlanFile, KeepsOperandTypesApart) {
  std::map<MatmulKey, MatmulPlan> list;
  uint64_t seed = 1;
  for (auto a : {cuda::OperandType::bf16, cuda::OperandType::e4m3, cuda::OperandType::e5m2}) {
    for (auto b : {cuda::OperandType::bf16, cuda::OperandType::e4m3}) {
      MatmulKey key = some_key(1);
      key.a_type = a;
      key.b_type = b;
      list[key] = some_plan(seed++);
    }
  }
  const PlanSet again = cuda::parse_plan_file(cuda::format_plan_file({{machine("A"), list}}));
  ASSERT_EQ(again.at(machine("A")).size(), list.size());
  for (const auto& [key, plan] : list)
    EXPECT_EQ(again.at(machine("A")).at(key).algorithm, plan.algorithm) << describe(key);
  MatmulKey mixed = some_key(1);
  mixed.a_type = cuda::OperandType::e5m2;
  mixed.b_type = cuda::OperandType::e4m3;
  EXPECT_EQ(describe(mixed), "TN 1x3072x2048 e5m2*e4m3->fp32 +bias +residual");
}

TEST(MatmulPlanFile, NoticesEveryDamage) {
  const std::string text = cuda::format_plan_file({{machine("A"), {{some_key(1), some_plan(1)}}}});
  for (size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] ^= 1;
    EXPECT_THROW(cuda::parse_plan_file(damaged), Error) << "byte " << i;
    EXPECT_THROW(cuda::parse_plan_file(text.substr(0, i)), Error) << "cut at " << i;
  }
}

TEST(MatmulPlanFile, OneOfANewerZenoIsNeitherReadNorReplaced) {
  const test::TempDir folder;
  EXPECT_EQ(cuda::plan_file_version(cuda::format_plan_file({})), cuda::kPlanFileVersion);
  EXPECT_EQ(cuda::plan_file_version("zeno matmul plans "), 0);
  EXPECT_EQ(cuda::plan_file_version("3"), 0);
  const std::string text = "zeno matmul plans 3\nwhatever is in it\n";
  const auto file = folder.write("plans", text);
  EXPECT_THROW(cuda::load_matmul_plans(file), NewerVersion);
  EXPECT_THROW(cuda::save_matmul_plans(file), NewerVersion);
  EXPECT_EQ(read_file(file), text);
}

TEST(MatmulPlanFile, LoadAndSaveMerge) {
  const test::TempDir folder;
  const std::string mine = machine("merge test"), other = machine("merge test", 1);
  const auto first = folder.write("first", cuda::format_plan_file({{mine, {{some_key(1), some_plan(1)}}},
                                                                   {other, {{some_key(1), some_plan(2)}}}}));
  const auto second =
      folder.write("second", cuda::format_plan_file({{mine, {{some_key(2), some_plan(3)}}},
                                                     {other, {{some_key(3), some_plan(4)}}}}));
  cuda::load_matmul_plans(first);
  cuda::save_matmul_plans(second);
  const PlanSet merged = cuda::parse_plan_file(read_file(second));
  EXPECT_EQ(merged.at(mine).at(some_key(1)).algorithm, some_plan(1).algorithm);
  EXPECT_EQ(merged.at(mine).at(some_key(2)).algorithm, some_plan(3).algorithm);
  // Plans of another library are kept in their file but never taken from one.
  EXPECT_EQ(merged.at(other).size(), 1u);
  EXPECT_EQ(merged.at(other).at(some_key(3)).algorithm, some_plan(4).algorithm);
  EXPECT_NE(cuda::describe_matmul_plans().find("TN 1x3072x2048 bf16->fp32 +bias +residual"),
            std::string::npos);
  cuda::plan_table(mine).drop(some_key(1));
}

TEST(MatmulPlanFile, UselessFilesAreIgnored) {
  const test::TempDir folder;
  const std::string name = machine("damage test");
  std::string damaged = cuda::format_plan_file({{name, {{some_key(1), some_plan(1)}}}});
  damaged[damaged.size() / 2] ^= 4;
  const auto path = folder.write("damaged", damaged);
  EXPECT_NO_THROW(cuda::load_matmul_plans(path));
  EXPECT_NO_THROW(cuda::load_matmul_plans(folder.write("text", "hello\n")));
  EXPECT_NO_THROW(cuda::load_matmul_plans(folder.write("empty", "")));
  EXPECT_NO_THROW(cuda::load_matmul_plans(folder.path() / "missing"));
  EXPECT_NO_THROW(cuda::load_matmul_plans(folder.path()));
  EXPECT_FALSE(cuda::plan_table(name).find(some_key(1)));
  // A damaged file is replaced by a good one, in a new folder too; a place that cannot be written is no
  // error.
  cuda::plan_table(name).offer(some_key(5), some_plan(5));
  cuda::save_matmul_plans(path);
  EXPECT_TRUE(cuda::parse_plan_file(read_file(path)).at(name).contains(some_key(5)));
  cuda::save_matmul_plans(folder.path() / "new" / "plans");
  EXPECT_TRUE(file_exists(folder.path() / "new" / "plans"));
  EXPECT_NO_THROW(cuda::save_matmul_plans(path / "below a file"));
  cuda::plan_table(name).drop(some_key(5));
}

TEST(MatmulPlanTable, KeepsTheBetterFounded) {
  cuda::PlanTable table;
  EXPECT_FALSE(table.find(some_key(1)));
  MatmulPlan plan = some_plan(1);
  plan.origin = MatmulPlan::Origin::first_choice;
  table.offer(some_key(1), plan);
  EXPECT_EQ(table.offer(some_key(1), some_plan(2)).algorithm, some_plan(2).algorithm);
  EXPECT_EQ(table.offer(some_key(1), some_plan(3)).algorithm, some_plan(2).algorithm);
  EXPECT_EQ(table.offer(some_key(1), plan).algorithm, some_plan(2).algorithm);
  EXPECT_EQ(table.find(some_key(1))->algorithm, some_plan(2).algorithm);
  MatmulKey other = some_key(1);
  other.align_bias = 4;
  EXPECT_FALSE(table.find(other));
}

}  // namespace
}  // namespace zeno::cuda_tests
