#include "zeno/device/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <latch>
#include <set>

#include "zeno/device/stream.h"

namespace zeno {
namespace {

std::set<int> cores_of_this_thread() {
  cpu_set_t mask;
  EXPECT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  std::set<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &mask)) cores.insert(core);
  }
  return cores;
}

// Where each thread of a stream with `near` may run.
std::vector<std::set<int>> cores_of_stream(Device near) {
  constexpr int kThreads = 3;
  std::vector<std::set<int>> cores(kThreads);
  Stream stream({.name = "host", .threads = kThreads, .near = near});
  stream.ref().launch([&](Workers& workers) {
    std::latch all(kThreads);  // an index for each thread
    workers.for_each(kThreads, [&](int64_t, int thread) {
      cores[size_t(thread)] = cores_of_this_thread();
      all.arrive_and_wait();
    });
  });
  stream.synchronize();
  return cores;
}

TEST(Cores, ListsOfLinux) {
  EXPECT_EQ(parse_core_list("0-3,8,10-11"), (std::vector{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(parse_core_list("5\n"), std::vector{5});
  EXPECT_EQ(parse_core_list(""), std::vector<int>{});
  EXPECT_EQ(parse_core_list("none"), std::vector<int>{});
}

TEST(Cores, BesideACpuThreadsRunWhereTheProcessMay) {
  for (const std::set<int>& cores : cores_of_stream({})) EXPECT_EQ(cores, cores_of_this_thread());
}

TEST(Cores, BesideAGpuThreadsStayOnItsNode) {
  if (device_count(Device::Kind::cuda) == 0) GTEST_SKIP() << "no GPU";
  const Device gpu{Device::Kind::cuda, 0};
  const std::vector<int> list = cores_near(gpu);
  const std::set<int> here = cores_of_this_thread();
  std::set<int> near;
  std::ranges::copy_if(list, std::inserter(near, near.end()), [&](int core) { return here.contains(core); });
  for (const std::set<int>& cores : cores_of_stream(gpu)) EXPECT_EQ(cores, near.empty() ? here : near);
}

}  // namespace
}  // namespace zeno
