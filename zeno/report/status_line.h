// A line about progress: in a terminal redrawn in place, at most ten times a second; in a file or pipe there
// are only whole lines. Log lines begin below an open line. A display that cannot be written is not worth a
// run: failures are ignored. The descriptor belongs to the caller. For one thread.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace zeno::report {

// A bar for `share` (0 … 1) and as many of the fields as fit into `width` characters, the most needed first:
// the bar shrinks first, then fields go; a very narrow line has no bar.
std::string bar_text(double share, std::span<const std::string> fields, int width);

class StatusLine {
 public:
  explicit StatusLine(int fd);
  ~StatusLine();  // finish()
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  bool in_terminal() const { return terminal_; }
  // In a terminal: shows what `text` makes of the width; `last` is shown in any case.
  void redraw(bool last, const std::function<std::string(int width)>& text);
  // In a file: a whole line.
  void print(std::string_view line);
  // Ends the redrawn line, so that other output can follow.
  void finish();

 private:
  int fd_;
  bool terminal_;
  std::chrono::steady_clock::time_point last_draw_{};
};

}  // namespace zeno::report
