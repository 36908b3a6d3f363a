// The contract of a queue, over both implementations.
#include "zeno/device/disk_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/faulty_files.h"
#include "tests/support/temp_dir.h"
#include "zeno/base/file.h"

namespace zeno {
namespace {

constexpr int kDepth = 4;
constexpr size_t kPage = kDirectAlign;

struct FreePages {
  void operator()(std::byte* p) const { std::free(p); }
};
using Pages = std::unique_ptr<std::byte, FreePages>;
Pages make_pages(size_t bytes) { return Pages(static_cast<std::byte*>(std::aligned_alloc(kPage, bytes))); }

class DiskQueueContract : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    queue_ = GetParam() == "uring" ? make_uring_queue(kDepth) : make_thread_queue(kDepth);
    if (!queue_) GTEST_SKIP() << "no io_uring here";
    fd_ = ::open((dir_.path() / "file").c_str(), O_RDWR | O_CREAT | O_DIRECT, 0600);
    if (fd_ < 0) fd_ = ::open((dir_.path() / "file").c_str(), O_RDWR | O_CREAT, 0600);
    ASSERT_GE(fd_, 0);
  }
  void TearDown() override {
    if (fd_ >= 0) ::close(fd_);
  }
  // Of a single request.
  int64_t result_of(const DiskRequest& request) {
    queue_->submit(request);
    DiskCompletion done[kDepth];
    EXPECT_EQ(queue_->wait(done), 1u);
    EXPECT_EQ(done[0].tag, request.tag);
    return done[0].result;
  }

  test::TempDir dir_;
  std::unique_ptr<DiskQueue> queue_;
  int fd_ = -1;
};

TEST_P(DiskQueueContract, MovesManyAtOnceAndNamesEach) {
  constexpr size_t kBlocks = 64;
  const Pages memory = make_pages(kBlocks * kPage), back = make_pages(kBlocks * kPage);
  for (size_t i = 0; i < kBlocks * kPage; ++i) memory.get()[i] = std::byte(i / 7 + i / kPage);
  std::memset(back.get(), 0, kBlocks * kPage);
  // Half of it registered, which must not be seen in the results.
  queue_->register_buffer({memory.get(), kBlocks / 2 * kPage});
  for (const bool write : {true, false}) {
    std::byte* data = write ? memory.get() : back.get();
    size_t next = 0, finished = 0;
    std::vector<int> free{0, 1, 2, 3};
    std::vector<size_t> seen;
    std::vector<size_t> block_of(kDepth);
    while (finished < kBlocks) {
      for (; !free.empty() && next < kBlocks; ++next) {
        block_of[size_t(free.back())] = next;
        queue_->submit({write, fd_, data + next * kPage, kPage, next * kPage, free.back()});
        free.pop_back();
      }
      DiskCompletion done[kDepth];
      const size_t count = queue_->wait(done);
      ASSERT_GE(count, 1u);
      for (size_t i = 0; i < count; ++i, ++finished) {
        EXPECT_EQ(done[i].result, int64_t(kPage));
        seen.push_back(block_of[size_t(done[i].tag)]);
        free.push_back(done[i].tag);
      }
    }
    std::ranges::sort(seen);
    for (size_t b = 0; b < kBlocks; ++b) EXPECT_EQ(seen[b], b);
  }
  EXPECT_EQ(std::memcmp(memory.get(), back.get(), kBlocks * kPage), 0);
}

TEST_P(DiskQueueContract, GivesNoMoreThanThereIsRoomFor) {
  const Pages memory = make_pages(kPage);
  for (int tag = 0; tag < kDepth; ++tag) queue_->submit({true, fd_, memory.get(), kPage, 0, tag});
  std::vector<int> tags;
  while (tags.size() < kDepth) {
    DiskCompletion one[1];
    ASSERT_EQ(queue_->wait(one), 1u);
    tags.push_back(one[0].tag);
  }
  std::ranges::sort(tags);
  EXPECT_EQ(tags, (std::vector<int>{0, 1, 2, 3}));
}

TEST_P(DiskQueueContract, ReportsErrorsAndShortTransfers) {
  const Pages memory = make_pages(2 * kPage);
  std::memset(memory.get(), 1, 2 * kPage);
  EXPECT_EQ(result_of({true, fd_, memory.get(), kPage, 0, 1}), int64_t(kPage));
  EXPECT_EQ(result_of({false, fd_, memory.get(), 2 * kPage, 0, 2}), int64_t(kPage)) << "the file ends there";
  EXPECT_EQ(result_of({false, fd_, memory.get(), kPage, kPage, 3}), 0);
  EXPECT_EQ(result_of({false, 1 << 20, memory.get(), kPage, 0, 0}), -EBADF);
  const int to_read = ::open((dir_.path() / "file").c_str(), O_RDONLY);
  EXPECT_EQ(result_of({true, to_read, memory.get(), kPage, 0, 0}), -EBADF);
  ::close(to_read);
  const int full = ::open("/dev/full", O_RDWR);
  EXPECT_EQ(result_of({true, full, memory.get(), kPage, 0, 0}), -ENOSPC);
  ::close(full);
}

TEST_P(DiskQueueContract, KnowsManyRegisteredBuffers) {
  std::vector<Pages> buffers;
  for (int i = 0; i < 5; ++i) {
    buffers.push_back(make_pages(2 * kPage));
    std::memset(buffers.back().get(), i + 1, 2 * kPage);
    queue_->register_buffer({buffers.back().get(), 2 * kPage});
    ASSERT_EQ(result_of({true, fd_, buffers.back().get(), 2 * kPage, uint64_t(i) * 2 * kPage, 0}),
              int64_t(2 * kPage));
  }
  for (int i = 0; i < 5; ++i) {
    // The second page of the last registered one, the rest of which must stay.
    ASSERT_EQ(result_of({false, fd_, buffers[4].get() + kPage, kPage, uint64_t(i) * 2 * kPage, 0}),
              int64_t(kPage));
    EXPECT_EQ(buffers[4].get()[kPage], std::byte(i + 1));
    EXPECT_EQ(buffers[4].get()[0], std::byte(5));
  }
}

INSTANTIATE_TEST_SUITE_P(Both, DiskQueueContract, testing::Values("uring", "threads"),
                         [](const auto& each) { return each.param; });

TEST(ThreadQueue, GoesThroughTheFileSystemSeam) {
  const test::TempDir dir;
  test::FaultyFiles files("seam", {.call = test::FileCall::pwrite, .at = 0, .error = EDQUOT});
  const FileSystemOverride with(files);
  File file = File::create(dir.path() / "seam");
  const auto queue = make_thread_queue(1);
  std::byte data[1]{};
  queue->submit({true, file.fd(), data, 1, 0, 0});
  DiskCompletion done[1];
  ASSERT_EQ(queue->wait(done), 1u);
  EXPECT_EQ(done[0].result, -EDQUOT);
}

// As in a container whose seccomp profile knows no io_uring.
bool forbid_uring() {
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{.len = std::size(filter), .filter = filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(DiskQueue, ThreadsTakeOverWhereUringIsForbidden) {
  const pid_t child = fork();
  if (child == 0) {
    if (!forbid_uring()) _exit(2);
    _exit(make_disk_queue(1)->name() == "threads" ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "no seccomp here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace zeno
