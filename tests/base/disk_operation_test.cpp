#include "zeno/base/disk_operation.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "zeno/base/log.h"

namespace zeno {
namespace {

using namespace std::chrono_literals;

const std::filesystem::path kFile = "/mnt/a/file", kOther = "/mnt/b/file";

TEST(DiskOperation, AnOldOneIsFoundAndNamed) {
  EXPECT_FALSE(find_disk_stall(0ms).has_value());
  set_log_rank(3);
  const DiskOperation writing("writing", kFile);
  std::this_thread::sleep_for(20ms);
  set_log_rank(5);
  const DiskOperation syncing("syncing", kOther);
  set_log_rank(-1);
  const std::optional<DiskStall> stall = find_disk_stall(10ms);
  ASSERT_TRUE(stall.has_value());
  EXPECT_EQ(stall->rank, 3);
  EXPECT_EQ(stall->operation, "writing /mnt/a/file");
  EXPECT_EQ(stall->text().find("[disk] writing /mnt/a/file: no response for 0."), 0u) << stall->text();
  EXPECT_EQ(find_disk_stall(0ms, 5)->operation, "syncing /mnt/b/file");
  EXPECT_FALSE(find_disk_stall(0ms, 4).has_value());
  EXPECT_FALSE(find_disk_stall(1h).has_value());
}

TEST(DiskOperation, IsForgottenWhenItEndsInWhateverOrder) {
  auto first = std::make_unique<DiskOperation>("reading", kFile);
  auto second = std::make_unique<DiskOperation>("reading", kFile);
  auto third = std::make_unique<DiskOperation>("reading", kOther);
  second.reset();
  first.reset();
  EXPECT_EQ(find_disk_stall(0ms)->operation, "reading /mnt/b/file");
  third.reset();
  EXPECT_FALSE(find_disk_stall(0ms).has_value());
}

}  // namespace
}  // namespace zeno
