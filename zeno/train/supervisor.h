// Starts a run as a process of its own and starts it again when it dies: from the newest checkpoint, at most
// so often, and never for an error that would only come again.
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

namespace zeno::train {

// How a process ended.
struct ChildEnd {
  int signal = 0;     // that killed it; 0: it ended by itself
  int exit_code = 0;  // 128 + signal when it was killed
  std::chrono::milliseconds lasted{};
  bool has_result = true;  // there is a model in the output folder
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
  char state = 0;       // 'Z': it has ended, and nobody has taken notice
  int exit_status = 0;  // then, as waitpid() would give it
};
ProcessStat stat_of(int pid);

// Has the process children, all of which have ended without its taking notice?
bool only_zombies_left(int pid);

class Supervisor {
 public:
  struct Output {
    std::optional<int64_t> newest_step;  // of the checkpoints that are whole
    bool has_result = false;             // there is a model
  };
  struct Options {
    std::vector<std::string> launcher;  // words before the command; empty: none
    // Arguments of this program for a start; asked before each of them.
    std::function<std::vector<std::string>()> arguments;
    // What the run has left on the disk. May be asked on another thread, and left behind there.
    std::function<Output()> output;
    int64_t max_restarts = 0;
    std::chrono::seconds save_deadline{0};             // after a signal to stop; 0: none
    std::chrono::milliseconds disk_deadline{300'000};  // longest wait for that answer
  };
  explicit Supervisor(Options options) : options_(std::move(options)) {}

  // Returns the exit code of the last process; 6 when that is 0 but there is no result, which launchers have
  // been seen to do. The first SIGINT, SIGTERM, SIGHUP or SIGUSR1 asks the run to stop, one that comes more
  // than a second later kills it, unless --save-deadline says when it has to end; after either it is not
  // started again. SIGUSR2 is passed on. The run dies with this process.
  int run();

 private:
  int start();
  ChildEnd wait_for(int pid, const sigset_t& signals);
  void pass_on(int signal, int pid);
  void give_up_saving(int pid);
  std::optional<Output> look_at_output() const;
  int no_answer(const ChildEnd& end) const;

  Options options_;
  int signals_ = 0;  // received so far
  std::chrono::steady_clock::time_point last_signal_{};
  std::optional<std::chrono::steady_clock::time_point> save_until_;  // then the run is ended
  bool gave_up_ = false;                                             // it was asked to, at least
};

}  // namespace zeno::train
