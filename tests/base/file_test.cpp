#include "zeno/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace zeno {
namespace {

using test::expect_error;
using test::TempDir;

// Moves few bytes at a time and is interrupted every second call; fails on demand.
class FaultyFiles : public FileSystem {
 public:
  size_t step = SIZE_MAX;
  bool interrupt = false;
  int open_error = 0, read_error = 0, sync_error = 0, rename_error = 0;
  int64_t disk_left = INT64_MAX;  // bytes until ENOSPC

  int open(const char* path, int flags, mode_t mode) override {
    if (open_error && (flags & O_DIRECTORY) == 0) return refuse(open_error);
    return FileSystem::open(path, flags, mode);
  }
  ssize_t pread(int fd, void* data, size_t bytes, off_t offset) override {
    if (interrupt && ++calls_ % 2) return refuse(EINTR);
    if (read_error) return refuse(read_error);
    return FileSystem::pread(fd, data, std::min(bytes, step), offset);
  }
  ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) override {
    if (interrupt && ++calls_ % 2) return refuse(EINTR);
    const size_t n = std::min({bytes, step, size_t(disk_left)});
    if (n == 0) return refuse(ENOSPC);
    disk_left -= int64_t(n);
    return FileSystem::pwrite(fd, data, n, offset);
  }
  int fsync(int fd) override { return sync_error ? refuse(sync_error) : FileSystem::fsync(fd); }
  int rename(const char* from, const char* to) override {
    return rename_error ? refuse(rename_error) : FileSystem::rename(from, to);
  }

 private:
  static int refuse(int error) {
    errno = error;
    return -1;
  }
  int calls_ = 0;
};

std::string pattern(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = char(i * 7 + i / 256);
  return text;
}

TEST(File, WritesAndReadsAnyRange) {
  TempDir dir;
  const std::string text = pattern(10000);
  {
    File file = File::create(dir.path() / "a");
    file.write_at(text.data() + 5000, 5000, 5000);
    file.write_at(text.data(), 5000, 0);
    file.sync();
    file.close();
  }
  const File file = File::open(dir.path() / "a");
  EXPECT_EQ(file.size(), text.size());
  std::string part(777, '\0');
  file.read_at(part.data(), part.size(), 4600);
  EXPECT_EQ(part, text.substr(4600, 777));
}

TEST(File, ContinuesShortAndInterruptedTransfers) {
  TempDir dir;
  const std::string text = pattern(1000);
  FaultyFiles faulty;
  faulty.step = 7;
  faulty.interrupt = true;
  FileSystemOverride with(faulty);
  replace_file(dir.path() / "a", text);
  EXPECT_EQ(read_file(dir.path() / "a"), text);
}

TEST(File, NamesPathAndReason) {
  TempDir dir;
  expect_error(ErrorKind::io, {"nowhere", "No such file"}, [&] { File::open(dir.path() / "nowhere"); });
  expect_error(ErrorKind::io, {"not a regular file"}, [&] { File::open(dir.path()); });
  const Path pipe = dir.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_error(ErrorKind::io, {"pipe", "not a regular file"}, [&] { File::open(pipe); });
  const Path path = dir.write("short", "12345");
  char buffer[10];
  expect_error(ErrorKind::io, {"short", "ends at byte 5", "expected at least 10"},
               [&] { File::open(path).read_at(buffer, 10, 0); });
  expect_error(ErrorKind::data, {"short", "got 5 bytes", "at most 4"}, [&] { read_file(path, 4); });

  FaultyFiles faulty;
  FileSystemOverride with(faulty);
  faulty.read_error = EIO;
  expect_error(ErrorKind::io, {"short", "Input/output error"}, [&] { read_file(path); });
  faulty.open_error = EACCES;
  expect_error(ErrorKind::io, {"short", "Permission denied", "permissions"}, [&] { read_file(path); });
}

TEST(File, ReplacesWholeOrNotAtAll) {
  TempDir dir;
  const Path path = dir.path() / "a";
  replace_file(path, "old");
  FaultyFiles faulty;
  FileSystemOverride with(faulty);
  const auto unchanged = [&] {
    EXPECT_EQ(read_file(path), "old");
    EXPECT_EQ(list_folder(dir.path()), std::vector<std::string>{"a"}) << "the temporary file must go";
  };
  for (int64_t left = 0; left < 3; ++left) {
    faulty.disk_left = left;
    expect_error(ErrorKind::io, {"a.tmp", "No space left", "free some space"},
                 [&] { replace_file(path, "new"); });
    unchanged();
  }
  faulty.disk_left = INT64_MAX;
  faulty.sync_error = EIO;
  expect_error(ErrorKind::io, {"sync", "a.tmp"}, [&] { replace_file(path, "new"); });
  unchanged();
  faulty.sync_error = 0;
  faulty.rename_error = EXDEV;
  expect_error(ErrorKind::io, {"rename"}, [&] { replace_file(path, "new"); });
  unchanged();
  faulty.rename_error = 0;
  replace_file(path, "new");
  EXPECT_EQ(read_file(path), "new");
}

TEST(File, MapsFiles) {
  TempDir dir;
  const std::string text = pattern(70000);
  MappedFile first(dir.write("a", text));
  MappedFile moved = std::move(first);
  ASSERT_EQ(moved.bytes().size(), text.size());
  EXPECT_EQ(std::memcmp(moved.bytes().data(), text.data(), text.size()), 0);
  EXPECT_TRUE(first.bytes().empty());
  EXPECT_TRUE(MappedFile(dir.write("empty", "")).bytes().empty());
}

TEST(File, RemovesAndLists) {
  TempDir dir;
  make_folders(dir.path() / "x" / "y");
  dir.write("b", "");
  dir.write("a", "");
  EXPECT_EQ(list_folder(dir.path()), (std::vector<std::string>{"a", "b", "x"}));
  remove_file(dir.path() / "a");
  remove_file(dir.path() / "a");
  EXPECT_EQ(list_folder(dir.path()), (std::vector<std::string>{"b", "x"}));
  EXPECT_FALSE(file_exists(dir.path() / "x"));
  expect_error(ErrorKind::io, {"cannot create folder"}, [&] { make_folders(dir.path() / "b" / "c"); });
}

// Says that it moved less than it did, not even whole pages.
class CutShort final : public FileSystem {
 public:
  ssize_t pread(int fd, void* data, size_t bytes, off_t offset) override {
    return cut(FileSystem::pread(fd, data, bytes, offset));
  }
  ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) override {
    return cut(FileSystem::pwrite(fd, data, bytes, offset));
  }

 private:
  ssize_t cut(ssize_t moved) { return calls_++ == 0 && moved > 0 ? moved / 3 : moved; }
  int calls_ = 0;
};

TEST(DirectFile, TransfersGoOnWhereverTheyAreCut) {
  const TempDir dir;
  const Path path = dir.path() / "file";
  constexpr size_t kBytes = 4 * kDirectAlign;
  struct alignas(kDirectAlign) Pages {
    char text[kBytes];
  };
  const auto in = std::make_unique<Pages>(), out = std::make_unique<Pages>();
  const std::string expected = pattern(kBytes);
  std::memcpy(out->text, expected.data(), kBytes);
  replace_file(path, "");
  {
    CutShort files;
    const FileSystemOverride use(files);
    File::open_direct_to_write(path).write_at(out->text, kBytes, 0);
  }
  EXPECT_EQ(read_file(path), expected);
  CutShort files;
  const FileSystemOverride use(files);
  File::open_direct(path).read_at(in->text, kBytes, 0);
  EXPECT_EQ(std::string(in->text, kBytes), expected);
}

}  // namespace
}  // namespace zeno
