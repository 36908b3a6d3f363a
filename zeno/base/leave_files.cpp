#include "zeno/base/leave_files.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <string_view>

#include "zeno/base/disk_operation.h"

namespace zeno {
namespace {

// The copy of one thread of many: others may have held any lock when it was made, so it makes calls of the
// system only.

// "7f0000000000-7f0040000000 rw-p ...": unmapped if it is large. The copy would keep the memory of the run.
void drop_if_large(std::string_view line, uintptr_t stack) {
  constexpr uintptr_t kLarge = uintptr_t(16) << 20;
  uintptr_t begin = 0, end = 0;
  const char* last = line.data() + line.size();
  const char* dash = std::from_chars(line.data(), last, begin, 16).ptr;
  if (dash == last) return;
  const char* space = std::from_chars(dash + 1, last, end, 16).ptr;
  const bool writable = last - space > 2 && space[2] == 'w';
  const bool used = begin <= stack && stack < end;
  if (writable && !used && end - begin >= kLarge) ::munmap(reinterpret_cast<void*>(begin), end - begin);
}

void drop_large_memory() {
  std::array<char, 1 << 14> buffer;
  const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  ssize_t bytes = 0;
  // The kernel gives whole lines.
  while ((bytes = ::read(maps, buffer.data(), buffer.size())) > 0) {
    std::string_view text(buffer.data(), size_t(bytes));
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size() - 1);
      drop_if_large(text.substr(0, end), reinterpret_cast<uintptr_t>(&bytes));
      text.remove_prefix(end + 1);
    }
  }
  ::close(maps);
}

// What is no file (pipes, connections, devices, memory): others wait for the end of a pipe, and a GPU for its
// memory. Only the name is asked for, which takes no disk.
void close_all_but_files() {
  constexpr int kMost = 1 << 16;
  for (int fd = 0; fd < kMost; ++fd) {
    std::array<char, 64> link{}, name{};
    constexpr std::string_view kFolder = "/proc/self/fd/";
    kFolder.copy(link.data(), kFolder.size());
    std::to_chars(link.data() + kFolder.size(), link.data() + link.size() - 1, fd);
    const ssize_t length = ::readlink(link.data(), name.data(), name.size());
    if (length <= 0) continue;
    const std::string_view shown(name.data(), size_t(length));
    const bool file = shown.starts_with('/') && !shown.starts_with("/dev/") && !shown.starts_with("/memfd:");
    if (!file) ::close(fd);
  }
}

[[noreturn]] void close_behind(pid_t parent) {
  ::prctl(PR_SET_NAME, "zeno-closing");
  drop_large_memory();
  constexpr useconds_t kMoment = 10'000;
  while (::getppid() == parent) ::usleep(kMoment);
  close_all_but_files();
  ::_exit(0);
}

}  // namespace

void leave_files_behind() noexcept {
  constexpr auto kMoment = std::chrono::milliseconds(500);
  static std::atomic<bool> done{false};
  try {
    if (!find_disk_stall(kMoment) || done.exchange(true)) return;
  } catch (...) {  // no memory: then the end takes as long as it takes
    return;
  }
  // The copy gets none of the signals that are meant for the run.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  const pid_t parent = ::getpid();
  // fork() would copy the table of open files, and files are flushed whenever one of several is closed.
  if (::syscall(SYS_clone, CLONE_FILES, nullptr, nullptr, nullptr, nullptr) == 0) close_behind(parent);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace zeno
