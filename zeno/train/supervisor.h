// Starts a run as a separate process and restarts it if it dies: from the newest checkpoint, up to N times,
// and never for an error that would only occur again.
//
// RestartPolicy decides and is pure; Supervisor does the process handling. During Supervisor::run() the
// process must have no other threads, and the supervisor handles SIGINT, SIGTERM, SIGUSR1, SIGUSR2 and
// SIGCHLD.
#pragma once

#include <signal.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/base/log.h"

namespace zeno::train {

// How a process ended.
struct ChildEnd {
  int signal = 0;     // the signal that killed it; 0: it exited
  int exit_code = 0;  // 128 + signal when it was killed
  std::chrono::milliseconds lasted{};
  bool done = true;  // everything was saved
};

class RestartPolicy {
 public:
  // After this many deaths in a row without a newer checkpoint, another start would be useless.
  static constexpr int kFruitless = 3;

  // `step`: the newest checkpoint before the first start, if there is one.
  RestartPolicy(int64_t max_restarts, std::optional<int64_t> step) : max_(max_restarts), step_(step) {}

  struct Verdict {
    bool restart = false;
    std::string text;  // what happened and what is done about it; empty if the run ended well
  };
  // `step`: the newest checkpoint now.
  Verdict after(const ChildEnd& end, std::optional<int64_t> step);

 private:
  int64_t max_;
  std::optional<int64_t> step_;
  int64_t restarts_ = 0;
  int fruitless_ = 0;
};

// The words of a command line, split at spaces outside '...' and "...". Error(usage) for an open quote.
std::vector<std::string> split_words(std::string_view text);

// A process in /proc; no state if there is no such process.
struct ProcessStat {
  char state = 0;
  bool ended = false;   // it is a zombie, or exiting, where a dead disk may block it
  int exit_status = 0;  // if it has ended, as waitpid() would give it
};
ProcessStat stat_of(int pid);

// Whether the process has children, all of which have ended without being waited for.
bool only_zombies_left(int pid);

class Supervisor {
 public:
  struct Output {
    std::optional<int64_t> newest_step;  // the newest intact checkpoint
    bool done = false;                   // the last run has saved everything
  };
  struct Options {
    std::vector<std::string> launcher;  // words to put before the command
    // The arguments of this program for the first start or a restart, given what is on the disk.
    std::function<std::vector<std::string>(bool restart, const Output& output)> arguments;
    // Looks for what the run has left on the disk. Called on another thread, which is abandoned if it hangs,
    // and called again after an Error(io), which may be temporary.
    std::function<Output()> output;
    int64_t max_restarts = 0;
    std::chrono::seconds save_deadline{0};             // after a signal to stop; 0: none
    std::chrono::milliseconds disk_deadline{300'000};  // longest wait for `output`
  };
  explicit Supervisor(Options options) : options_(std::move(options)) {}

  // Returns the run's exit code, or 6 if that is 0 although the run is not done: some launchers lose exit
  // codes. The first SIGINT, SIGTERM or SIGHUP requests the run to stop; another one more than a second later
  // kills it, unless --save-deadline says when it has to end. SIGUSR1 only requests a stop. After any of
  // these the run is not restarted; if it was not running, the exit code is 128 + signal. SIGUSR2 is passed
  // on. The run dies with this process.
  int run();

 private:
  int start(const std::vector<std::string>& arguments);
  ChildEnd wait_for(int pid, const sigset_t& signals);
  int exit_code_of(const ChildEnd& end) const;
  int end_without_look(const ChildEnd& end, RestartPolicy& policy) const;
  int end_asked(const ChildEnd& end) const;
  bool counts(int signal);
  void pass_on(int signal, int pid);
  void ask_to_stop(int signal, int pid);
  void give_up_saving(int pid);
  struct Look {
    std::optional<Output> output;
    std::string problem;  // why there is no output
    ErrorKind kind = ErrorKind::io;
  };
  Look look_at_output(const sigset_t& signals);
  bool asked_again(const sigset_t& signals);
  // Logs without waiting for a disk that does not respond.
  void say(LogLevel level, const std::string& text) const;

  Options options_;
  int asked_ = 0;    // the signal that requested the run to stop
  int signals_ = 0;  // number of signals that count
  std::chrono::steady_clock::time_point last_signal_{};
  std::optional<std::chrono::steady_clock::time_point> save_until_;  // when the run is ended
  bool gave_up_ = false;                                             // it was sent a signal to end, at least
};

}  // namespace zeno::train
