#include "zeno/train/build_progress.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/base/quantity.h"
#include "zeno/device/ledger.h"
#include "zeno/report/progress.h"
#include "zeno/train/interrupt.h"

namespace zeno::train {
namespace {

// A build that ends sooner prints no progress to a file; its result is logged anyway.
constexpr auto kBetweenLines = std::chrono::seconds(10);

double share_of(const data::BuildState& state) {
  return state.bytes_total == 0 ? 1 : double(state.bytes_read) / double(state.bytes_total);
}

std::string eta(const data::BuildState& state, double seconds) {
  const double share = share_of(state);
  return report::format_duration(share > 0 ? seconds * (1 - share) / share : -1);
}

}  // namespace

std::string build_plain_line(const data::BuildState& state, double seconds) {
  return fmt::format("reading data: {} of {} ({:.0f} %)  {} samples  {} tokens  ETA {}",
                     format_bytes(state.bytes_read), format_bytes(state.bytes_total), 100 * share_of(state),
                     format_count(state.samples), format_count(state.tokens), eta(state, seconds));
}

std::string build_bar_line(const data::BuildState& state, double seconds, int width) {
  const std::vector<std::string> fields{
      // in order of importance
      fmt::format("reading data {:.0f} %", 100 * share_of(state)),
      fmt::format("ETA {}", eta(state, seconds)),
      fmt::format("{} samples", report::format_rate(double(state.samples))),
      fmt::format("{} tokens", report::format_rate(double(state.tokens))),
      fmt::format("{}/s", format_bytes(uint64_t(double(state.bytes_read) / std::max(seconds, 1e-3)))),
  };
  return report::bar_text(share_of(state), fields, width);
}

void BuildDisplay::update(const data::BuildState& state, Clock::time_point now) {
  const bool last = state.bytes_read >= state.bytes_total;
  if (last && state.bytes_read == bytes_) return;  // the end was shown already
  if (state.bytes_read < bytes_) begin_ = now;
  bytes_ = state.bytes_read;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  line_.redraw(last, [&](int width) { return build_bar_line(state, seconds, width); });
  if (last) line_.finish();
  if (last || now - last_line_ < kBetweenLines) return;
  last_line_ = now;
  line_.print(build_plain_line(state, seconds));
}

data::BuildProgress build_progress(int rank) {
  // Shared: a std::function is copied.
  const auto display = rank == 0 ? std::make_shared<BuildDisplay>(STDERR_FILENO) : nullptr;
  return [display](const data::BuildState& state) {
    require(!Interrupt::requested(), ErrorKind::usage,
            "[data] interrupted while reading the data: nothing was trained; run the same command again");
    if (display) display->update(state);
  };
}

}  // namespace zeno::train
