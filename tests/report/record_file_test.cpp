#include "zeno/report/record_file.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace zeno::report {
namespace {

using test::expect_error;

// A disk with so much room.
struct SmallDisk final : FileSystem {
  size_t room = 1 << 30;
  size_t read = 0;
  ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) override {
    if (room == 0) {
      errno = ENOSPC;
      return -1;
    }
    const ssize_t n = FileSystem::pwrite(fd, data, std::min(bytes, room), offset);
    room -= size_t(n);
    return n;
  }
  ssize_t pread(int fd, void* data, size_t bytes, off_t offset) override {
    read += bytes;
    return FileSystem::pread(fd, data, bytes, offset);
  }
};

std::string line(int64_t step) { return fmt::format("{{\"step\":{}}}\n", step); }

TEST(RecordFile, WhatAFullDiskDoesNotTakeComesLater) {
  SmallDisk disk;
  const FileSystemOverride use(disk);
  const test::TempDir folder;
  const Path path = folder.path() / "records";
  RecordFile file = RecordFile::create(path);
  file.append(line(1));
  disk.room = 5;  // less than a record
  for (int64_t step = 2; step <= 4; ++step) {
    expect_error(ErrorKind::io, {"records", "No space left"}, [&] { file.append(line(step)); });
    EXPECT_EQ(read_file(path), line(1)) << "readers see whole records";
  }
  EXPECT_EQ(file.waiting(), 3);
  disk.room = 1 << 30;
  file.append(line(5));
  EXPECT_EQ(read_file(path), line(1) + line(2) + line(3) + line(4) + line(5));
  EXPECT_EQ(file.waiting(), 0);
  EXPECT_EQ(file.take_lost(), 0);
}

TEST(RecordFile, KeepsNoMoreThanItsBound) {
  SmallDisk disk;
  const FileSystemOverride use(disk);
  const test::TempDir folder;
  const Path path = folder.path() / "records";
  RecordFile file = RecordFile::create(path);
  disk.room = 0;
  const std::string record = std::string(999, 'x') + "\n";
  constexpr int64_t kRecords = 9000, kFit = int64_t(RecordFile::kMostWaiting) / 1000;
  for (int64_t i = 0; i < kRecords; ++i) EXPECT_THROW(file.append(record), Error);
  disk.room = 1 << 30;
  file.append(record);  // what is waiting has gone by then
  EXPECT_EQ(file.take_lost(), kRecords - kFit);
  EXPECT_EQ(file.take_lost(), 0);
  EXPECT_EQ(file.waiting(), 0);
  EXPECT_EQ(read_file(path).size(), size_t(kFit + 1) * 1000);
}

TEST(RecordFile, GoesOnBehindTheLastLineThatIsKept) {
  const test::TempDir folder;
  std::string text;
  for (int64_t step = 1; step <= 20'000; ++step) text += line(step);
  const auto up_to = [](int64_t done) {
    return [done](std::string_view l) {
      return l.starts_with("{\"step\":") && std::stoll(std::string(l.substr(8))) <= done;
    };
  };
  const Path path =
      folder.write("records", text + "{\"event\":\"done\"}\n{\"step\":20001");  // the last one is cut
  RecordFile::resume(path, up_to(20'000)).append("next\n");
  EXPECT_EQ(read_file(path), text + "next\n");
  RecordFile::resume(path, up_to(7)).append("next\n");
  EXPECT_EQ(read_file(path), text.substr(0, text.find(line(8))) + "next\n");
  EXPECT_TRUE(RecordFile::resume(path, up_to(0)).empty());
  EXPECT_EQ(read_file(path), "");
  RecordFile::resume(folder.path() / "new", up_to(3)).append("first\n");
  EXPECT_EQ(read_file(folder.path() / "new"), "first\n");
  // What a power cut may leave at the end.
  const Path torn = folder.write("torn", line(1) + line(2) + std::string(3 << 20, '\0'));
  RecordFile::resume(torn, up_to(2)).append(line(3));
  EXPECT_EQ(read_file(torn), line(1) + line(2) + line(3));
}

// Files of long runs are not read from the start, nor into memory.
TEST(RecordFile, ReadsTheEndOfALargeFileOnly) {
  const test::TempDir folder;
  const Path path = folder.path() / "records";
  std::string block;
  while (block.size() < (1 << 20)) block += line(1);
  {
    File file = File::create(path);
    for (uint64_t i = 0; i < 64; ++i) file.write_at(block.data(), block.size(), i * block.size());
  }
  SmallDisk disk;
  const FileSystemOverride use(disk);
  EXPECT_FALSE(RecordFile::resume(path, [](std::string_view l) { return l == "{\"step\":1}"; }).empty());
  EXPECT_EQ(File::open(path).size(), 64 * block.size());
  EXPECT_LE(disk.read, size_t(1) << 17);
}

}  // namespace
}  // namespace zeno::report
