#include "zeno/train/saving/folder_lock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

#include "tests/support/temp_dir.h"
#include "zeno/base/error.h"

namespace zeno::test {
namespace {

using namespace std::chrono_literals;
using train::FolderLock;

constexpr std::chrono::milliseconds kShort(100), kLong(60s);

class FolderLockTest : public testing::Test {
 protected:
  void expect_taken() const {
    try {
      const FolderLock second(folder_, kShort);
      FAIL() << "two have the lock";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(error.what()).find("another run is writing there"), std::string::npos);
    }
  }

  TempDir dir_;
  const Path folder_ = dir_.path() / "out";
};

TEST_F(FolderLockTest, OneHasItAndLeavesNothing) {
  {
    const FolderLock first(folder_);
    EXPECT_FALSE(first.waited());
    expect_taken();
    expect_taken();  // whoever was refused has not removed the holder's file
  }
  EXPECT_FALSE(folder_exists(folder_));
}

TEST_F(FolderLockTest, AFolderWithFilesStays) {
  {
    const FolderLock lock(folder_);
    replace_file(folder_ / "config.json", "{}");
  }
  EXPECT_EQ(list_folder(folder_), std::vector<std::string>{"config.json"});
}

// The first removes the file that the second has opened already.
TEST_F(FolderLockTest, WhoeverWaitedHasItAloneAndKnows) {
  std::optional<FolderLock> first(std::in_place, folder_);
  std::thread end([&] {
    std::this_thread::sleep_for(kShort);
    first.reset();
  });
  const FolderLock second(folder_, kLong);
  end.join();
  EXPECT_TRUE(second.waited());
  expect_taken();
}

TEST_F(FolderLockTest, AFileThatAKilledRunLeftIsNoLock) {
  make_folders(folder_);
  replace_file(folder_ / ".zeno-lock", "");
  const FolderLock lock(folder_, kShort);
  EXPECT_FALSE(lock.waited());
  expect_taken();
}

}  // namespace
}  // namespace zeno::test
