// One log sink for the process, tagged by rank. Info lines are printed by rank 0 only; warnings and errors by
// every rank. Thin on purpose: spdlog's heavy headers stay in log.cpp.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace zeno {

enum class LogLevel { debug, info, warning, error };

// The rank of the calling thread (threads of a rank inherit it by calling this too). -1: no rank yet.
void set_log_rank(int rank);
int log_rank();
void set_log_level(LogLevel level);
void log_line(LogLevel level, std::string_view text);
// Says whether a line on the terminal is being redrawn (progress), and tells what was said before. The next
// log line begins below it and ends that.
bool exchange_open_line(bool open);

template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::warning, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace zeno
