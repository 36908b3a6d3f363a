// Extents come back as they were written, through every fault that can be gone on from; the others are errors
// that say where and what. Over both queues.
#include "zeno/device/disk_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/device/faulty_queue.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"
#include "zeno/base/disk_operation.h"
#include "zeno/base/math.h"
#include "zeno/base/rng.h"

namespace zeno {
namespace {

using test::DiskFault;
using test::expect_error;

constexpr size_t kRequest = 4 * kDirectAlign;

// Random bytes; `shift` moves them off the page.
class Memory {
 public:
  explicit Memory(size_t bytes, uint64_t seed = 0, size_t shift = 0)
      : owner_(static_cast<std::byte*>(
            std::aligned_alloc(kDirectAlign, round_up(bytes + shift + 1, kDirectAlign)))),
        bytes_(owner_.get() + shift, bytes) {
    for (size_t i = 0; i < bytes; ++i) bytes_[i] = std::byte(random_bits(seed, 1, i));
  }
  std::span<std::byte> bytes() const { return bytes_; }
  bool operator==(const Memory& other) const { return std::ranges::equal(bytes_, other.bytes_); }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> owner_;
  std::span<std::byte> bytes_;
};

uint64_t checksum_of(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

class DiskStores : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "uring" && !make_uring_queue(1)) GTEST_SKIP() << "no io_uring here";
  }
  DiskOptions options(size_t folders = 1) {
    DiskOptions o{.name = "rank3", .request_bytes = kRequest, .depth = 4};
    for (size_t f = 0; f < folders; ++f) {
      o.folders.push_back(dir_.path() / fmt::format("drive{}", f));
      make_folders(o.folders.back());
    }
    o.make_queue = [this](int depth) -> std::unique_ptr<DiskQueue> {
      auto inner = GetParam() == "uring" ? make_uring_queue(depth) : make_thread_queue(depth);
      return std::make_unique<test::FaultyQueue>(std::move(inner), fault_);
    };
    return o;
  }
  Path swap(int folder = 0) const { return dir_.path() / fmt::format("drive{}", folder) / "zeno-rank3.swap"; }

  test::TempDir dir_;
  DiskFault fault_;
};

const size_t kSizes[] = {
    0, 1, kDirectAlign - 1, kDirectAlign, kRequest, kRequest + 1, 3 * kRequest, 23 * kRequest + 17};

TEST_P(DiskStores, GiveBackWhatWasWritten) {
  for (const size_t folders : {1, 2, 3}) {
    for (const size_t shift : {size_t(0), size_t(8)}) {
      DiskStore store(options(folders));
      size_t on_disk = 0;
      for (const size_t size : kSizes) {
        store.add(size, "state");
        on_disk += round_up(size, kDirectAlign);
      }
      EXPECT_EQ(store.bytes(), on_disk);
      store.create();
      EXPECT_EQ(store.engine(), GetParam() == "uring" ? "io_uring" : "threads");
      // Half of the memory registered, which must not be seen in the results.
      const Memory memory(24 * kRequest, 0, shift);
      store.register_buffer(memory.bytes().first(12 * kRequest));
      for (const uint64_t round : {0, 1}) {
        for (size_t e = 0; e < std::size(kSizes); ++e) {
          const Memory from(kSizes[e], 10 * round + e);
          std::ranges::copy(from.bytes(), memory.bytes().begin());
          store.write(int(e), memory.bytes().first(kSizes[e]));
        }
        for (size_t e = 0; e < std::size(kSizes); ++e) {
          const Memory from(kSizes[e], 10 * round + e);
          store.read(int(e), memory.bytes().first(kSizes[e]));
          EXPECT_TRUE(std::ranges::equal(memory.bytes().first(kSizes[e]), from.bytes())) << kSizes[e];
        }
      }
    }
  }
}

TEST_P(DiskStores, SpreadBlocksOverFoldersAndRemoveTheirFiles) {
  {
    DiskStore store(options(3));
    store.add(7 * kRequest, "a");
    store.add(2 * kRequest, "b");
    store.create();
    for (int f = 0; f < 3; ++f) {
      struct stat info;
      ASSERT_EQ(::stat(swap(f).c_str(), &info), 0);
      EXPECT_EQ(info.st_size, off_t(3 * kRequest)) << f;
      EXPECT_GE(info.st_blocks * 512, off_t(3 * kRequest)) << "the space is not taken";
      struct stat ordinary;  // it may become part of a checkpoint, which others can read as they may
      File::create(dir_.path() / "ordinary");
      ASSERT_EQ(::stat((dir_.path() / "ordinary").c_str(), &ordinary), 0);
      EXPECT_EQ(info.st_mode, ordinary.st_mode);
    }
  }
  for (int f = 0; f < 3; ++f) EXPECT_FALSE(file_exists(swap(f)));
}

TEST_P(DiskStores, ReadAndWriteAtTheSameTime) {
  constexpr int kRounds = 20;
  constexpr size_t kBytes = 37 * kRequest;
  DiskStore store(options(2));
  for (int e = 0; e < 2; ++e) store.add(kBytes, "state");
  store.create();
  const Memory old(kBytes, 1), fresh(kBytes, 2);
  store.register_buffer(old.bytes());
  store.write(0, old.bytes());
  std::thread writer([&] {
    for (int round = 0; round < kRounds; ++round) store.write(1, fresh.bytes());
  });
  for (int round = 0; round < kRounds; ++round) {
    const Memory to(kBytes);
    store.read(0, to.bytes());
    EXPECT_EQ(to, old);
  }
  writer.join();
  const Memory to(kBytes);
  store.read(1, to.bytes());
  EXPECT_EQ(to, fresh);
}

// Cut in the middle, within a page, before the first page is through; interrupted, busy.
TEST_P(DiskStores, GoOnWhereTransfersWereCut) {
  const Memory from(9 * kRequest + 100, 5);
  for (const bool write : {true, false}) {
    for (const int64_t result : {int64_t(2 * kDirectAlign), int64_t(kDirectAlign + 1000), int64_t(7),
                                 int64_t(-EAGAIN), int64_t(-EINTR)}) {
      fault_ = {.write = write, .at = 1, .count = 3, .result = result};
      DiskStore store(options());
      store.add(from.bytes().size(), "state");
      store.create();
      store.write(0, from.bytes());
      const Memory to(from.bytes().size());
      store.read(0, to.bytes());
      EXPECT_EQ(to, from) << result;
      EXPECT_EQ(fault_.requests, 10 + 3) << "three requests had to be repeated or continued";
    }
  }
}

TEST_P(DiskStores, SayWhatFailedAndCanBeUsedAgain) {
  const Memory from(20 * kRequest, 5);
  struct Case {
    bool write;
    int64_t result;
    std::vector<std::string> says;
  };
  for (const Case& c : {Case{true, -EIO, {"write", "Input/output error", "drive may be failing"}},
                        Case{true, -ENOSPC, {"write", "No space left", "free some space"}},
                        Case{true, 0, {"write", "Input/output error"}},
                        Case{false, -EIO, {"read", "Input/output error", "drive may be failing"}},
                        Case{false, 0, {"read", "the file ends there"}}}) {
    for (const int64_t at : {0, 6, 19}) {
      fault_ = {.write = c.write};
      DiskStore store(options(2));
      store.add(from.bytes().size(), "moments of layers.3");
      store.create();
      store.write(0, from.bytes());
      const Memory to(from.bytes().size());
      fault_ = {.write = c.write, .at = at, .result = c.result};
      std::vector<std::string> says = c.says;
      says.push_back(swap(int(at % 2)).string());
      says.push_back(fmt::format("at byte {} ", at / 2 * int64_t(kRequest)));
      says.push_back("(moments of layers.3)");
      expect_error(ErrorKind::io, says,
                   [&] { c.write ? store.write(0, from.bytes()) : store.read(0, to.bytes()); });
      EXPECT_EQ(fault_.in_flight, 0) << "the disk still uses memory of the caller";
      if (c.write) {
        expect_error(ErrorKind::internal, {"read before it was written"}, [&] { store.read(0, to.bytes()); });
        store.write(0, from.bytes());
      }
      store.read(0, to.bytes());
      EXPECT_EQ(to, from);
    }
  }
}

TEST_P(DiskStores, GiveUpOnADiskThatNeverMovesAPage) {
  const Memory from(2 * kRequest, 5);
  fault_ = {.write = true, .at = 1, .count = INT64_MAX, .result = 100};
  DiskStore store(options());
  store.add(from.bytes().size(), "state");
  store.create();
  expect_error(ErrorKind::io,
               {"cannot write", fmt::format("at byte {}", kRequest), "cut short within a page"},
               [&] { store.write(0, from.bytes()); });
}

TEST_P(DiskStores, FindAFlippedBit) {
  const Memory from(9 * kRequest + 123, 5);
  const Memory to(from.bytes().size());
  for (const bool verify : {true, false}) {
    for (const size_t at : {size_t(0), 5 * kRequest + 77, from.bytes().size() - 1}) {
      DiskOptions o = options();
      o.verify = verify;
      DiskStore store(o);
      store.add(kRequest, "another");
      store.add(from.bytes().size(), "masters of lm_head");
      store.create();
      store.write(1, from.bytes());
      const auto flip = [&] {
        const int fd = ::open(swap().c_str(), O_RDWR);
        std::byte byte;
        ASSERT_EQ(::pread(fd, &byte, 1, off_t(kRequest + at)), 1);
        byte ^= std::byte(16);
        ASSERT_EQ(::pwrite(fd, &byte, 1, off_t(kRequest + at)), 1);
        ::close(fd);
      };
      flip();
      if (verify) {
        expect_error(
            ErrorKind::io,
            {swap().string(), "damaged", fmt::format("bytes {}-", kRequest + at / kRequest * kRequest),
             "masters of lm_head", "got checksum", "last checkpoint"},
            [&] { store.read(1, to.bytes()); });
        flip();
      }
      store.read(1, to.bytes());
      EXPECT_EQ(to == from, verify);
    }
  }
}

TEST_P(DiskStores, FindAFileThatWasCut) {
  const Memory from(4 * kRequest, 5);
  DiskStore store(options());
  store.add(from.bytes().size(), "state");
  store.create();
  store.write(0, from.bytes());
  ASSERT_EQ(::truncate(swap().c_str(), off_t(3 * kRequest + 2 * kDirectAlign)), 0);
  expect_error(ErrorKind::io,
               {swap().string(), fmt::format("at byte {}", 3 * kRequest + 2 * kDirectAlign), "ends there"},
               [&] { store.read(0, from.bytes()); });
}

// The file goes to somebody else as it is, and the store goes on in another.
TEST_P(DiskStores, GiveTheirFileAway) {
  const size_t head = 2 * kDirectAlign;
  const Memory a(3 * kRequest + kDirectAlign, 1), b(2 * kRequest, 2), newer(b.bytes().size(), 3);
  const Path kept = dir_.path() / "kept", other = swap().parent_path() / "zeno-rank3b.swap";
  make_folders(other.parent_path());
  File::create(other).resize(10 * kRequest);  // what a killed run has left
  {
    DiskStore store(options());
    store.reserve_head(head);
    store.add(a.bytes().size(), "a", {0, 100, kRequest + 4, kRequest + 5});
    store.add(b.bytes().size(), "b", {0});
    store.create();
    EXPECT_FALSE(file_exists(other));
    store.write(0, a.bytes());
    EXPECT_FALSE(store.can_give(dir_.path())) << "b was never written";
    store.write(1, b.bytes());
    EXPECT_FALSE(store.can_give("/proc")) << "another file system";
    ASSERT_TRUE(store.can_give(dir_.path()));
    const DiskStore::Given given = store.give();
    const std::vector<uint64_t> sums{checksum_of(a.bytes().subspan(0, 100)),
                                     checksum_of(a.bytes().subspan(100, kRequest - 96)),
                                     checksum_of(a.bytes().subspan(kRequest + 4, 1)),
                                     checksum_of(a.bytes().subspan(kRequest + 5)), checksum_of(b.bytes())};
    EXPECT_EQ(given.checksums, sums);
    given.file().move_to(kept);
    EXPECT_FALSE(file_exists(swap()));
    EXPECT_TRUE(file_exists(other));
    const std::string image = read_file(kept);
    ASSERT_EQ(image.size(), head + a.bytes().size() + b.bytes().size());
    EXPECT_EQ(std::memcmp(image.data() + head, a.bytes().data(), a.bytes().size()), 0);
    EXPECT_EQ(std::memcmp(image.data() + head + a.bytes().size(), b.bytes().data(), b.bytes().size()), 0);

    store.write(1, newer.bytes());  // not to the file that is gone
    EXPECT_EQ(read_file(kept), image);
    EXPECT_FALSE(store.can_give(dir_.path())) << "a is still in the old file";
    const Memory to_a(a.bytes().size()), to_b(b.bytes().size());
    store.read(0, to_a.bytes());
    store.read(1, to_b.bytes());
    EXPECT_EQ(to_a, a);
    EXPECT_EQ(to_b, newer);
    store.write(0, a.bytes());
    ASSERT_TRUE(store.can_give(dir_.path()));
    store.give();  // nobody keeps it
    EXPECT_TRUE(file_exists(swap()));
    store.read(0, to_a.bytes());
    store.write(0, a.bytes());
    store.write(1, b.bytes());
    EXPECT_FALSE(file_exists(other)) << "nothing is in it any more";
  }
  EXPECT_TRUE(file_exists(kept));
  EXPECT_FALSE(file_exists(swap()));
}

// No room for another file: the store stays with the one it has.
TEST_P(DiskStores, KeepTheirFileWhereThereIsNoOther) {
  const Memory from(kRequest, 1), to(kRequest);
  DiskStore store(options());
  store.add(kRequest, "a");
  store.create();
  store.write(0, from.bytes());
  const Path other = swap().parent_path() / "zeno-rank3b.swap";
  make_folders(other);  // in the way
  expect_error(ErrorKind::io, {other.string()}, [&] { store.give(); });
  store.read(0, to.bytes());
  EXPECT_EQ(to, from);
  std::filesystem::remove(other);
  EXPECT_TRUE(store.can_give(dir_.path()));
  store.give();
}

// Notes which operation stands for each of its calls.
class NotingQueue final : public DiskQueue {
 public:
  NotingQueue(std::unique_ptr<DiskQueue> inner, std::vector<std::string>& operations)
      : inner_(std::move(inner)), operations_(operations) {}
  std::string_view name() const override { return inner_->name(); }
  bool register_buffer(std::span<std::byte> memory) override { return inner_->register_buffer(memory); }
  void submit(const DiskRequest& request) override {
    note("submit");
    inner_->submit(request);
  }
  size_t wait(std::span<DiskCompletion> done) override {
    note("wait");
    return inner_->wait(done);
  }

 private:
  void note(const std::string& call) {
    const auto under_way = find_disk_stall(std::chrono::milliseconds(0));
    operations_.push_back(call + ": " + (under_way ? under_way->operation : "unknown"));
  }

  std::unique_ptr<DiskQueue> inner_;
  std::vector<std::string>& operations_;
};

// On a disk that does not answer, any call of the queue may hang.
TEST_P(DiskStores, AreNamedInEachCallThatMayHang) {
  std::vector<std::string> operations;
  DiskOptions noting = options();
  noting.make_queue = [&](int depth) {
    return std::make_unique<NotingQueue>(make_thread_queue(depth), operations);
  };
  const Memory from(kRequest, 1), to(kRequest);
  DiskStore store(noting);
  store.add(kRequest, "a");
  store.create();
  store.write(0, from.bytes());
  store.read(0, to.bytes());
  const std::string folder = noting.folders.front().string();
  EXPECT_EQ(operations, (std::vector{"submit: writing to " + folder, "wait: writing to " + folder,
                                     "submit: reading from " + folder, "wait: reading from " + folder}));
}

INSTANTIATE_TEST_SUITE_P(Both, DiskStores, testing::Values("uring", "threads"),
                         [](const auto& each) { return each.param; });

TEST(DiskStore, RefusesWhatMakesNoSense) {
  expect_error(ErrorKind::usage, {"no folder"}, [] { DiskStore(DiskOptions{}); });
  expect_error(ErrorKind::usage, {"got 5000", "multiple of 4096"},
               [] { DiskStore(DiskOptions{.folders = {"/tmp"}, .request_bytes = 5000}); });
  expect_error(ErrorKind::usage, {"in flight", "got 0"},
               [] { DiskStore(DiskOptions{.folders = {"/tmp"}, .depth = 0}); });
}

}  // namespace
}  // namespace zeno
