#include "zeno/base/leave_files.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>

#include "zeno/base/disk_operation.h"

namespace zeno {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // has large memory of its own, which no thread can do without
#else
constexpr bool kSanitized = false;
#endif

// A copy of the memory of the run would take as much again, and pages that a GPU may use are copied at once.
void keep_memory_from_copy() {
  if (kSanitized) return;
  constexpr uintptr_t kLarge = uintptr_t(16) << 20;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    char writable = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %*c%c", &begin, &end, &writable) != 3) continue;
    const auto here = reinterpret_cast<uintptr_t>(&line);
    if (writable != 'w' || end - begin < kLarge || (begin <= here && here < end)) continue;
    ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTFORK);
  }
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

// In a copy of one thread of many: others may have held any lock when it was made, so from here on it makes
// calls of the system only.
[[noreturn]] void close_behind(pid_t parent) {
  ::prctl(PR_SET_NAME, "zeno-closing");
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
    keep_memory_from_copy();
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
