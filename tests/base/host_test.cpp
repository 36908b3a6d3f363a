#include "zeno/base/host.h"

#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace zeno {
namespace {

constexpr size_t kGiB = size_t(1) << 30;

// A machine with 64 GiB, 60 of them free.
class Host : public testing::Test {
 protected:
  Host() {
    write("proc/meminfo", "MemTotal:       67108864 kB\nMemFree: 1 kB\nMemAvailable:   62914560 kB\n");
  }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((dir_.path() / path).parent_path());
    dir_.write(path, text);
  }
  HostLimits limits() const { return host_limits(dir_.path()); }
  test::TempDir dir_;
};

TEST_F(Host, WithoutGroupsTheMachineIsTheLimit) {
  EXPECT_EQ(limits().total_memory, 64 * kGiB);
  EXPECT_EQ(limits().available_memory, 60 * kGiB);
  EXPECT_EQ(limits().cores, 0);
  write("proc/self/cgroup", "0::/user.slice\n");
  write("sys/fs/cgroup/user.slice/memory.max", "max\n");
  write("sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
  EXPECT_EQ(limits().available_memory, 60 * kGiB);
  EXPECT_EQ(limits().cores, 0);
}

// A job in a larger group: the tighter limit holds, less what is in use, but not what is only cached.
TEST_F(Host, EveryGroupAroundHasASay) {
  write("proc/self/cgroup", "0::/slurm/job_7/step_0\n");
  write("sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max\n");
  write("sys/fs/cgroup/slurm/job_7/memory.max", "17179869184\n");
  write("sys/fs/cgroup/slurm/job_7/memory.current", "6442450944\n");
  write("sys/fs/cgroup/slurm/job_7/memory.stat", "anon 1\ninactive_file 2147483648\n");
  write("sys/fs/cgroup/slurm/memory.max", "34359738368\n");
  write("sys/fs/cgroup/slurm/memory.current", "30064771072\n");
  write("sys/fs/cgroup/slurm/job_7/cpu.max", "250000 100000\n");
  write("sys/fs/cgroup/slurm/cpu.max", "800000 100000\n");
  EXPECT_EQ(limits().total_memory, 16 * kGiB);
  EXPECT_EQ(limits().available_memory, 4 * kGiB) << "the outer group has 4 GiB left, ours 12";
  EXPECT_EQ(limits().cores, 2.5);
}

// A container of the first version sees its own group where the others see the mount.
TEST_F(Host, AContainerMaySeeThePathOfItsHost) {
  write("proc/self/cgroup", "5:memory:/docker/4711\n4:cpu,cpuacct:/docker/4711\n1:name=systemd:/x\n0::/\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "8589934592\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n");
  write("sys/fs/cgroup/memory/memory.stat", "inactive_file 5\ntotal_inactive_file 536870912\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(limits().total_memory, 8 * kGiB);
  EXPECT_EQ(limits().available_memory, 8 * kGiB - kGiB / 2);
  EXPECT_EQ(limits().cores, 0);
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000\n");
  EXPECT_EQ(limits().cores, 3);
}

TEST_F(Host, MoreInUseThanAllowedLeavesNothing) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "1000\n");
  write("sys/fs/cgroup/memory.current", "2000\n");
  EXPECT_EQ(limits().available_memory, 0u);
}

TEST(HostItself, HasCoresAndMemory) {
  EXPECT_GE(available_cores(), 1);
  EXPECT_EQ(share_of_cores(1'000'000), 1);
  EXPECT_GT(available_host_memory(), 0u);
  EXPECT_LE(available_host_memory(), total_host_memory());
}

}  // namespace
}  // namespace zeno
