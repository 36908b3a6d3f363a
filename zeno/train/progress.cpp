#include "zeno/train/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <span>
#include <vector>

#include "zeno/device/ledger.h"

namespace zeno::train {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);

// Three significant digits with a unit of thousands.
std::string scaled(double value, std::span<const std::string_view> units) {
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < units.size()) {
    value /= 1000;
    ++unit;
  }
  const int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", value, decimals, units[unit]);
}

std::string loss_field(const ProgressState& state) {
  return state.skipped ? "step skipped" : fmt::format("loss {:.4f}", state.loss);
}

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

std::string format_rate(double per_s) {
  static constexpr std::array<std::string_view, 4> kUnits{"", "k", "M", "G"};
  return std::isfinite(per_s) && per_s >= 0 ? scaled(per_s, kUnits) : "?";
}

std::string format_duration(double seconds) {
  if (!(seconds >= 0 && seconds < 1e9)) return "?";
  const int64_t s = int64_t(std::llround(seconds));
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}d {:02}:{:02}", s / 86400, s / 3600 % 24, s / 60 % 60);
}

std::string plain_line(const ProgressState& state) {
  return fmt::format("step {}/{}  {}  lr {:.3g}  {} tokens/s  memory {}  ETA {}", state.step, state.total,
                     loss_field(state), state.lr, format_rate(state.tokens_per_s), format_bytes(state.memory),
                     format_duration(state.eta_s));
}

std::string bar_line(const ProgressState& state, int width) {
  constexpr int kMinBar = 8, kMaxBar = 30, kFrame = 3;  // brackets and a space
  constexpr int kNarrow = 40;  // columns below which numbers are worth more than a bar
  const std::vector<std::string> fields{
      fmt::format("{}/{}", state.step, state.total),
      loss_field(state),
      fmt::format("ETA {}", format_duration(state.eta_s)),
      fmt::format("{} tok/s", format_rate(state.tokens_per_s)),
      fmt::format("lr {:.3g}", state.lr),
      format_bytes(state.memory),
  };
  // Fields in the order of need, as many as fit; the bar gets what is left.
  const int room = width < kNarrow ? width : width - kMinBar - kFrame;
  std::string text;
  for (const std::string& field : fields) {
    if (int(text.size() + field.size()) + (text.empty() ? 0 : 2) > room) break;
    text += (text.empty() ? "" : "  ") + field;
  }
  if (text.empty()) return fields[0].substr(0, size_t(std::max(width, 0)));
  const int bar = std::min(kMaxBar, width - int(text.size()) - kFrame);
  if (bar < kMinBar) return text;
  const double share = state.total > 0 ? double(state.step) / double(state.total) : 0;
  const int filled = int(std::clamp(share, 0.0, 1.0) * bar);
  return fmt::format("[{}{}] {}", std::string(size_t(filled), '='), std::string(size_t(bar - filled), ' '),
                     text);
}

bool prints_at(int64_t step, int64_t total, int64_t every) {
  const int64_t period = every > 0 ? every : std::max<int64_t>(1, total / 20);
  return step == 1 || step == total || step % period == 0;
}

Progress::Progress(int fd, int64_t total_steps, int64_t every)
    : fd_(fd), total_(total_steps), every_(every), terminal_(::isatty(fd) == 1) {}

Progress::~Progress() { finish(); }

void Progress::update(const StepRecord& record) {
  // The mean forgets: the first steps (page faults, cold caches) are slower than what follows.
  mean_step_ms_ = mean_step_ms_ == 0 ? record.step_ms : 0.9 * mean_step_ms_ + 0.1 * record.step_ms;
  draw({.step = record.step,
        .total = total_,
        .loss = record.loss,
        .lr = record.lr,
        .tokens_per_s = record.tokens_per_s,
        .memory = record.peak_device + record.peak_host,
        .eta_s = double(total_ - record.step) * mean_step_ms_ / 1000,
        .skipped = record.skipped});
}

void Progress::draw(const ProgressState& state) {
  if (!terminal_) {
    if (prints_at(state.step, total_, every_)) write_all(fd_, plain_line(state) + "\n");
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (state.step < total_ && now - last_draw_ < kRedraw) return;
  last_draw_ = now;
  // One column stays free: a full line makes some terminals wrap.
  write_all(fd_, fmt::format("\r{}\x1b[K", bar_line(state, terminal_width(fd_) - 1)));
  line_open_ = true;
}

void Progress::finish() {
  if (line_open_) write_all(fd_, "\n");
  line_open_ = false;
}

}  // namespace zeno::train
