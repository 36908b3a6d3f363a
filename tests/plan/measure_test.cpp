#include "zeno/plan/machine/measure.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"
#include "zeno/plan/machine/measure_bench.h"
#include "zeno/plan/machine/measure_host.h"

namespace zeno::plan {
namespace {

// Sizes that say nothing about the machine, and take no time.
constexpr MeasureSizes kTiny{.seconds = 0.02,
                             .tokens = 64,
                             .width = 64,
                             .inner = 128,
                             .seq = 32,
                             .head_dim = 32,
                             .elements = 1 << 12,
                             .copy_bytes = 64 << 10,
                             .disk_bytes = 1 << 20};

MeasureOptions tiny_options(const Path& folder) { return {.folder = folder, .sizes = kTiny}; }

// Says that the disk is full.
class FullDisk final : public FileSystem {
 public:
  int statvfs(const char* path, struct statvfs* info) override {
    const int result = FileSystem::statvfs(path, info);
    info->f_bavail = 3;
    return result;
  }
};

TEST(Measure, EveryRateOfThisMachine) {
  const test::TempDir folder;
  MeasureOptions options = tiny_options(folder.path());
  options.between_rate = 5e9;
  options.rails = 2;
  std::set<std::string> lines;
  options.report = [&](const Measured& line) {
    EXPECT_TRUE(lines.insert(std::string(line.what)).second) << line.what << " comes twice";
    EXPECT_FALSE(line.rate.empty() || line.how.empty()) << line.what;
  };
  const Machine m = measure_machine(options);
  for (const double value : {m.matmul_16bit, m.matmul_fp32, m.matmul_fp8, m.attention, m.memory_rate,
                             m.launch, m.memory, m.host_memory, m.host_updates, m.host_link, m.disk_read,
                             m.disk_write, m.disk, m.inside.rate, m.inside.latency, m.between.latency}) {
    EXPECT_TRUE(std::isfinite(value) && value > 0) << value;
  }
  EXPECT_TRUE(std::isfinite(m.packing) && m.packing >= 0) << m.packing;
  EXPECT_EQ(m.between.rate, 5e9);
  EXPECT_EQ(m.rails, 2);
  EXPECT_EQ(m.kind, Device::Kind::cpu);
  EXPECT_EQ(m.ranks(), 1);
  EXPECT_TRUE(lines.contains("matmul, 16 bits") && lines.contains("packing") &&
              lines.contains("disk, write"));
  EXPECT_TRUE(list_folder(folder.path()).empty()) << "the file is gone";
}

TEST(Measure, AProfileIsFoundAgain) {
  const test::TempDir folder;
  EXPECT_FALSE(measured_machine(folder.path(), Device::Kind::cpu));
  const Machine measured = measure_machine(tiny_options(folder.path()));
  save_machine(measured, machine_file(folder.path(), Device::Kind::cpu));
  const auto found = measured_machine(folder.path(), Device::Kind::cpu);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->name, measured.name);
  EXPECT_EQ(found->matmul_fp32, measured.matmul_fp32);
  EXPECT_EQ(found->packing, measured.packing);
  EXPECT_EQ(found->inside.latency, measured.inside.latency);
  EXPECT_FALSE(measured_machine(folder.path(), Device::Kind::cuda)) << "each device has its own";

  replace_file(machine_file(folder.path(), Device::Kind::cpu), "{}");
  EXPECT_FALSE(measured_machine(folder.path(), Device::Kind::cpu)) << "a damaged one counts as none";
}

TEST(Measure, WhatCannotBeMeasuredIsNamed) {
  const test::TempDir folder;
  MeasureOptions options = tiny_options(folder.path());
  options.report = [](const Measured& line) { ADD_FAILURE() << line.what << " was measured"; };
  {
    FullDisk full;
    const FileSystemOverride use(full);
    test::expect_error(ErrorKind::io, {folder.path().string(), "1.00 MiB"},
                       [&] { measure_machine(options); });
  }
  options.folder = folder.path() / "missing";
  test::expect_error(ErrorKind::usage, {options.folder.string()}, [&] { measure_machine(options); });
  options.folder = folder.write("file", "no folder");
  test::expect_error(ErrorKind::usage, {options.folder.string()}, [&] { measure_machine(options); });
  if (device_count(Device::Kind::cuda) > 0) return;
  options.kind = Device::Kind::cuda;
  test::expect_error(ErrorKind::usage, {"cuda"}, [&] { measure_machine(options); });
}

TEST(Measure, TheClockCountsCalls) {
  int queued = 0, done = 0;
  const double seconds = sustained_seconds(
      0.01, [&] { ++queued; }, [&] { done = queued; });
  EXPECT_EQ(done, queued);
  EXPECT_GT(queued, 100) << "rounds grow until they last";
  EXPECT_LT(seconds, 0.01 / 100);
}

TEST(Measure, UpdatesOfEveryKindOfState) {
  constexpr int64_t kCount = 6400;
  zero::Policy policy;
  HostUpdates plain({}, 1, policy, kCount);
  EXPECT_EQ(plain.bytes(), 16.0 * kCount) << "masters are the parameters";
  policy.compute = policy.grad = DType::bf16;
  HostUpdates copied({}, 2, policy, kCount);
  EXPECT_EQ(copied.bytes(), 14.0 * kCount) << "masters are what parameters leave";
  policy.moments = DType::u8;
  HostUpdates cells({}, 2, policy, kCount);
  EXPECT_LT(cells.bytes(), 9.0 * kCount);
  for (HostUpdates* updates : {&plain, &copied, &cells}) {
    updates->run();
    EXPECT_EQ(updates->count(), kCount);
  }
}

}  // namespace
}  // namespace zeno::plan
