#include "zeno/base/log.h"

#include <atomic>
#include <cstdio>
#include <mutex>

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

}  // namespace

void set_log_rank(int rank) { t_rank = rank; }
int log_rank() { return t_rank; }
void set_log_level(LogLevel level) { g_level = level; }

bool exchange_open_line(bool open) { return g_open_line.exchange(open); }

void log_line(LogLevel level, std::string_view text) {
  if (level < g_level || (level == LogLevel::info && t_rank > 0)) return;
  const bool tagged = t_rank >= 0 && level >= LogLevel::warning;
  const std::string rank = tagged ? fmt::format("[rank {}] ", t_rank) : std::string();
  const std::scoped_lock lock(g_mutex);
  const char* below = exchange_open_line(false) ? "\n" : "";
  fmt::print(stderr, "{}{}{}{}\n", below, rank, prefix_of(level), text);
  std::fflush(stderr);
}

}  // namespace zeno
