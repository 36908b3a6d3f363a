#include "zeno/base/log.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>

#include "zeno/base/disk_operation.h"

namespace zeno {
namespace {

thread_local int t_rank = -1;
LogLevel g_level = LogLevel::info;
std::mutex g_mutex;
std::atomic<bool> g_open_line = false;

const char* prefix_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return "debug: ";
    case LogLevel::info:
      return "";
    case LogLevel::warning:
      return "warning: ";
    case LogLevel::error:
      return "error: ";
  }
  return "";
}

// A terminal or a pipe may block for hours on purpose; a file may not.
bool is_in_file() {
  static const bool is_file = [] {
    struct stat info;
    return ::fstat(STDERR_FILENO, &info) == 0 && S_ISREG(info.st_mode);
  }();
  return is_file;
}

// Not locked when another thread has been stuck in the log for 2 s: this one must not get stuck as well.
std::unique_lock<std::mutex> take_turn() {
  if (!is_in_file()) return std::unique_lock(g_mutex);
  constexpr std::chrono::milliseconds kMoment(2000), kStep(10);
  std::unique_lock lock(g_mutex, std::try_to_lock);
  for (auto waited = std::chrono::milliseconds(0); !lock && waited < kMoment; waited += kStep) {
    std::this_thread::sleep_for(kStep);
    lock.try_lock();
  }
  return lock;
}

}  // namespace

void set_log_rank(int rank) { t_rank = rank; }
int log_rank() { return t_rank; }
void set_log_level(LogLevel level) { g_level = level; }

bool exchange_open_line(bool open) { return g_open_line.exchange(open); }

void log_line(LogLevel level, std::string_view text) {
  if (level < g_level || (level == LogLevel::info && t_rank > 0)) return;
  const bool tagged = t_rank >= 0 && level >= LogLevel::warning;
  const std::string rank = tagged ? fmt::format("[rank {}] ", t_rank) : std::string();
  const std::unique_lock lock = take_turn();
  if (!lock) return;
  static const std::filesystem::path kLog = "the log";
  std::optional<DiskOperation> writing;
  if (is_in_file()) writing.emplace("writing", kLog);
  const char* below = exchange_open_line(false) ? "\n" : "";
  const std::string line = fmt::format("{}{}{}{}\n", below, rank, prefix_of(level), text);
  // A log that accepts no more (a full disk, a reader that has exited) is no reason to fail.
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

}  // namespace zeno
