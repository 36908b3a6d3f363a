#include "zeno/report/progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "zeno/device/ledger.h"

namespace zeno::report {
namespace {

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
  const std::vector<std::string> fields{
      // in the order of need
      fmt::format("{}/{}", state.step, state.total),
      loss_field(state),
      fmt::format("ETA {}", format_duration(state.eta_s)),
      fmt::format("{} tok/s", format_rate(state.tokens_per_s)),
      fmt::format("lr {:.3g}", state.lr),
      format_bytes(state.memory),
  };
  return bar_text(state.total > 0 ? double(state.step) / double(state.total) : 0, fields, width);
}

bool prints_at(int64_t step, int64_t total, int64_t every) {
  const int64_t period = every > 0 ? every : std::max<int64_t>(1, total / 20);
  return step == 1 || step == total || step % period == 0;
}

void Progress::update(const StepRecord& record) {
  // The mean forgets: the first steps (page faults, cold caches) are slower than what follows.
  mean_step_ms_ = mean_step_ms_ == 0 ? record.step_ms : 0.9 * mean_step_ms_ + 0.1 * record.step_ms;
  const ProgressState state{.step = record.step,
                            .total = total_,
                            .loss = record.loss,
                            .lr = record.lr,
                            .tokens_per_s = record.tokens_per_s,
                            .memory = record.peak_device + record.peak_host,
                            .eta_s = double(total_ - record.step) * mean_step_ms_ / 1000,
                            .skipped = record.skipped};
  line_.redraw(state.step >= total_, [&](int width) { return bar_line(state, width); });
  if (prints_at(state.step, total_, every_)) line_.print(plain_line(state));
}

}  // namespace zeno::report
