// The files of state on disk: who owns them, what a killed run leaves, disks that are full.
#include "zeno/device/disk_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"
#include "zeno/base/disk_operation.h"
#include "zeno/device/disk_store.h"

namespace zeno {
namespace {

using test::expect_error;
using test::TempDir;

constexpr size_t kMegabyte = size_t(1) << 20;

DiskOptions options(std::vector<Path> folders) {
  return {.folders = std::move(folders), .name = "rank0", .request_bytes = 64 << 10, .depth = 2};
}

void write_and_read(DiskStore& store, size_t bytes) {
  const std::vector<std::byte> from(bytes, std::byte(7));
  std::vector<std::byte> to(bytes);
  store.write(0, from);
  store.read(0, to);
  EXPECT_EQ(to, from);
}

TEST(SwapFile, BelongsToOneRun) {
  const TempDir dir;
  {
    const SwapFile first(dir.path() / "a");
    expect_error(ErrorKind::io, {(dir.path() / "a").string(), "in use by another run", "another folder"},
                 [&] { SwapFile(dir.path() / "a"); });
    EXPECT_TRUE(file_exists(dir.path() / "a")) << "the refused one must leave it alone";
  }
  EXPECT_FALSE(file_exists(dir.path() / "a"));
  DiskStore twice(options({dir.path(), dir.path()}));
  expect_error(ErrorKind::io, {"name each folder once"}, [&] { twice.create(); });
  EXPECT_TRUE(list_folder(dir.path()).empty());
}

// Notes which operation stands for each of its calls.
class NotingFiles final : public FileSystem {
 public:
  int open(const char* path, int flags, mode_t mode) override {
    note();
    return FileSystem::open(path, flags, mode);
  }
  int rename(const char* from, const char* to) override {
    note();
    return FileSystem::rename(from, to);
  }
  std::vector<std::string> operations;

 private:
  void note() {
    const auto under_way = find_disk_stall(std::chrono::milliseconds(0));
    operations.push_back(under_way ? under_way->operation : "unknown");
  }
};

// On a disk that does not answer, any call may hang.
TEST(SwapFile, IsNamedInCallsThatMayHang) {
  const TempDir dir;
  NotingFiles noting;
  const FileSystemOverride with(noting);
  const std::string path = dir.path() / "a";
  SwapFile(path).move_to(dir.path() / "b");
  EXPECT_EQ(noting.operations, (std::vector{"opening " + path, "renaming " + path}));
}

TEST(SwapFile, NamesWhatCannotBeOpened) {
  const TempDir dir;
  expect_error(ErrorKind::io, {(dir.path() / "nowhere" / "a").string(), "No such file", "folder"},
               [&] { SwapFile(dir.path() / "nowhere" / "a"); });
  // A link in a folder for everybody could lead anywhere.
  dir.write("mine", "precious");
  ASSERT_EQ(::symlink((dir.path() / "mine").c_str(), (dir.path() / "a").c_str()), 0);
  expect_error(ErrorKind::io, {"open"}, [&] { SwapFile(dir.path() / "a"); });
  EXPECT_EQ(read_file(dir.path() / "mine"), "precious");
}

// A real process with a store is killed: while it lives nobody else gets its file, afterwards the next run
// does.
TEST(SwapFile, OfAKilledRunIsUsedAgain) {
  const TempDir dir;
  const Path path = dir.path() / "zeno-rank0.swap";
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    DiskStore store(options({dir.path()}));
    store.add(4 * kMegabyte, "state");
    store.create();
    const std::vector<std::byte> from(4 * kMegabyte);
    const bool told = ::write(ready[1], "x", 1) == 1;
    while (told) store.write(0, from);
    _exit(1);
  }
  char x;
  ASSERT_EQ(::read(ready[0], &x, 1), 1);
  DiskStore store(options({dir.path()}));
  store.add(kMegabyte, "state");
  expect_error(ErrorKind::io, {path.string(), "in use by another run"}, [&] { store.create(); });
  EXPECT_EQ(std::filesystem::file_size(path), 4 * kMegabyte) << "the refused run must not touch it";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
  EXPECT_TRUE(file_exists(path)) << "nobody was left to remove it";
  store.create();
  EXPECT_EQ(std::filesystem::file_size(path), kMegabyte);
  write_and_read(store, kMegabyte);
}

// A file system of 2 MiB in memory; needs root.
class SmallDisk {
 public:
  SmallDisk() : mounted_(::mount("none", dir_.path().c_str(), "tmpfs", 0, "size=2m") == 0) {}
  ~SmallDisk() {
    if (mounted_) ::umount2(dir_.path().c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  const Path& path() const { return dir_.path(); }

 private:
  TempDir dir_;
  bool mounted_;
};

TEST(DiskStore, ChecksFreeSpaceBeforeTakingIt) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "mounting is not allowed";
  const TempDir other;
  DiskStore store(options({other.path(), disk.path()}));
  store.add(5 * kMegabyte, "state");
  expect_error(ErrorKind::io, {"too little space in " + disk.path().string(), "2.00 MiB free", "2.50 MiB"},
               [&] { store.create(); });
  EXPECT_TRUE(list_folder(disk.path()).empty());
  EXPECT_TRUE(list_folder(other.path()).empty());

  // Two folders on one disk: each has enough for its own half, not for both.
  make_folders(disk.path() / "a");
  make_folders(disk.path() / "b");
  DiskStore halves(options({disk.path() / "a", disk.path() / "b"}));
  halves.add(3 * kMegabyte, "state");
  expect_error(ErrorKind::io, {"too little space", "2.00 MiB free", "3.00 MiB"}, [&] { halves.create(); });

  DiskStore fits(options({disk.path()}));
  fits.add(kMegabyte, "state");
  fits.create();
  write_and_read(fits, kMegabyte);
}

// Somebody else took the space between the check and the reservation.
class BoastfulDisk final : public FileSystem {
 public:
  int statvfs(const char* path, struct statvfs* info) override {
    const int result = FileSystem::statvfs(path, info);
    info->f_bavail = 1 << 20;
    return result;
  }
};

TEST(DiskStore, TakesItsSpaceAtOnceOrNotAtAll) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "mounting is not allowed";
  BoastfulDisk boastful;
  const FileSystemOverride with(boastful);
  DiskStore store(options({disk.path()}));
  store.add(3 * kMegabyte, "state");
  expect_error(ErrorKind::io,
               {"cannot reserve", "3.00 MiB", disk.path().string(), "No space left", "free some space"},
               [&] { store.create(); });
  EXPECT_TRUE(list_folder(disk.path()).empty());
}

// What a killed run left must not count against the next one.
TEST(DiskStore, FitsWhereAKilledRunFitted) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "mounting is not allowed";
  const int left = ::open((disk.path() / "zeno-rank0.swap").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(::posix_fallocate(left, 0, off_t(2 * kMegabyte - 4096)), 0);
  ::close(left);
  DiskStore store(options({disk.path()}));
  store.add(kMegabyte, "state");
  store.create();
  write_and_read(store, kMegabyte);
}

}  // namespace
}  // namespace zeno
