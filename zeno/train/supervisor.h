// Starts a run as a separate process and restarts it if it dies: from the newest checkpoint, up to N times,
// and never for an error that would only come again.
//
// RestartPolicy decides and is pure; Supervisor does the process handling. While Supervisor::run() is under
// way the process has no other threads, and its handling of SIGINT, SIGTERM, SIGUSR1, SIGUSR2 and SIGCHLD is
// the supervisor's.
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
  int signal = 0;     // that killed it; 0: it ended by itself
  int exit_code = 0;  // 128 + signal when it was killed
  std::chrono::milliseconds lasted{};
  bool done = true;  // everything was saved
};

class RestartPolicy {
 public:
  // Deaths in a row without a newer checkpoint after which another start would be no use.
  static constexpr int kFruitless = 3;

  // `step`: of the newest checkpoint before the first start, if there is one.
  RestartPolicy(int64_t max_restarts, std::optional<int64_t> step) : max_(max_restarts), step_(step) {}

  struct Verdict {
    bool restart = false;
    std::string text;  // what happened and what follows; empty when the run ended well
  };
  // `step`: of the newest checkpoint now.
  Verdict after(const ChildEnd& end, std::optional<int64_t> step);

 private:
  int64_t max_;
  std::optional<int64_t> step_;
  int64_t restarts_ = 0;
  int fruitless_ = 0;
};

// Words of a command line: split at spaces, with '...' and "..." to keep them. Error(usage) for an open
// quote.
std::vector<std::string> split_words(std::string_view text);

// A process as the system shows it; no state when there is none.
struct ProcessStat {
  char state = 0;
  bool ended = false;   // it is a zombie, or on its way out, in which a dead disk may hold it
  int exit_status = 0;  // then, as waitpid() would give it
};
ProcessStat stat_of(int pid);

// Has the process children, all of which have ended without its taking notice?
bool only_zombies_left(int pid);

class Supervisor {
 public:
  struct Output {
    std::optional<int64_t> newest_step;  // of the checkpoints that are whole
    bool done = false;                   // the run that was started last has saved everything
  };
  struct Options {
    std::vector<std::string> launcher;  // words before the command; empty: none
    // Arguments of this program for the first start or a restart, given what is on the disk.
    std::function<std::vector<std::string>(bool restart, const Output& output)> arguments;
    // What the run has left on the disk. Called on another thread, which is abandoned if it hangs, and called
    // again after an Error(io), which may be temporary.
    std::function<Output()> output;
    int64_t max_restarts = 0;
    std::chrono::seconds save_deadline{0};             // after a signal to stop; 0: none
    std::chrono::milliseconds disk_deadline{300'000};  // longest wait for `output`
  };
  explicit Supervisor(Options options) : options_(std::move(options)) {}

  // Returns the run's exit code, or 6 if that is 0 although the run is not done: some launchers lose exit
  // codes. The first SIGINT, SIGTERM or SIGHUP asks the run to stop, one that comes more than a second later
  // kills it, unless --save-deadline says when it has to end; SIGUSR1 only asks. After any of them it is not
  // restarted, or not started: 128 + signal. SIGUSR2 is passed on. The run dies with this process.
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
    std::string problem;  // why there is none
    ErrorKind kind = ErrorKind::io;
  };
  Look look_at_output(const sigset_t& signals);
  bool asked_again(const sigset_t& signals);
  // Not held up by a log on a disk that does not respond.
  void say(LogLevel level, const std::string& text) const;

  Options options_;
  int asked_ = 0;    // the signal that asked the run to stop
  int signals_ = 0;  // those that count
  std::chrono::steady_clock::time_point last_signal_{};
  std::optional<std::chrono::steady_clock::time_point> save_until_;  // then the run is ended
  bool gave_up_ = false;                                             // it was asked to, at least
};

}  // namespace zeno::train
