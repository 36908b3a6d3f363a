#include "zeno/report/status_line.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>

#include "zeno/base/disk_operation.h"
#include "zeno/base/log.h"

namespace zeno::report {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);

int terminal_width(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(size_t(n));
  }
}

}  // namespace

std::string bar_text(double share, std::span<const std::string> fields, int width) {
  constexpr int kMinBar = 8, kMaxBar = 30, kFrame = 3;  // brackets and a space
  constexpr int kNarrow = 40;  // columns below which numbers are worth more than a bar
  const int room = width < kNarrow ? width : width - kMinBar - kFrame;
  std::string text;
  for (const std::string& field : fields) {
    if (int(text.size() + field.size()) + (text.empty() ? 0 : 2) > room) break;
    text += (text.empty() ? "" : "  ") + field;
  }
  if (text.empty()) return fields[0].substr(0, size_t(std::max(width, 0)));
  const int bar = std::min(kMaxBar, width - int(text.size()) - kFrame);
  if (bar < kMinBar) return text;
  const int filled = int(std::clamp(share, 0.0, 1.0) * bar);
  return fmt::format("[{}{}] {}", std::string(size_t(filled), '='), std::string(size_t(bar - filled), ' '),
                     text);
}

StatusLine::StatusLine(int fd) : fd_(fd), terminal_(::isatty(fd) == 1) {}

StatusLine::~StatusLine() { finish(); }

void StatusLine::redraw(bool last, const std::function<std::string(int width)>& text) {
  if (!terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (!last && now - last_draw_ < kRedraw) return;
  last_draw_ = now;
  // One column stays free: a full line makes some terminals wrap.
  write_all(fd_, fmt::format("\r{}\x1b[K", text(terminal_width(fd_) - 1)));
  exchange_open_line(true);
}

void StatusLine::print(std::string_view line) {
  static const std::filesystem::path kLog = "the log";
  if (terminal_) return;
  // A pipe may stand still for hours, a file may not.
  std::optional<DiskOperation> writing;
  if (struct stat info; ::fstat(fd_, &info) == 0 && S_ISREG(info.st_mode)) writing.emplace("writing", kLog);
  write_all(fd_, fmt::format("{}\n", line));
}

void StatusLine::finish() {
  if (terminal_ && exchange_open_line(false)) write_all(fd_, "\n");
}

}  // namespace zeno::report
