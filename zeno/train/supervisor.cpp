#include "zeno/train/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "zeno/base/within.h"
#include "zeno/train/interrupt.h"

namespace zeno::train {
namespace {

using Clock = std::chrono::steady_clock;

// The signals that a supervisor waits for; they are blocked in the meantime.
class SignalSet {
 public:
  SignalSet() {
    sigemptyset(&set_);
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&set_, signal);
    struct sigaction hang_up {};
    sigaction(SIGHUP, nullptr, &hang_up);
    if (hang_up.sa_handler != SIG_IGN) sigaddset(&set_, SIGHUP);  // with nohup the run outlives the terminal
    sigprocmask(SIG_BLOCK, &set_, &before_);
  }
  ~SignalSet() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  SignalSet(const SignalSet&) = delete;
  SignalSet& operator=(const SignalSet&) = delete;

  const sigset_t& set() const { return set_; }

 private:
  sigset_t set_{}, before_{};
};

constexpr const char* kNoResult = ", but this host sees no complete result in --out";

std::string describe(const ChildEnd& end) {
  const double seconds = std::chrono::duration<double>(end.lasted).count();
  if (end.signal == 0) return fmt::format("ended with exit code {} after {:.1f} s", end.exit_code, seconds);
  const char* name = sigabbrev_np(end.signal);
  return fmt::format("was killed by {} after {:.1f} s",
                     name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", end.signal),
                     seconds);
}

bool asks_to_stop(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGUSR1;
}

// In the child: executes the program, or writes the error to `failed`. Uses only calls that are allowed after
// fork().
[[noreturn]] void become(const char* file, char* const* words, pid_t parent, int death_signal, int failed) {
  prctl(PR_SET_PDEATHSIG, death_signal);
  if (getppid() != parent) _exit(exit_code(ErrorKind::peer));  // the parent died before it could be watched
  // A process group of its own: signals that a terminal or launcher sends to a group go to the supervisor,
  // which passes them on once. It gets no input, so that no read can stop it in the background.
  setpgid(0, 0);
  if (const int null = open("/dev/null", O_RDONLY); null >= 0) dup2(null, STDIN_FILENO);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  execvp(file, words);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(failed, &error, sizeof error);
  _exit(127);
}

}  // namespace

RestartPolicy::Verdict RestartPolicy::after(const ChildEnd& end, std::optional<int64_t> step) {
  const bool well = end.signal == 0 && end.exit_code == 0;
  if (well && end.done) return {};
  std::string text = "[supervisor] the run " + describe(end);
  if (well) text += kNoResult;
  if (max_ == 0) return {false, well ? text : ""};
  if (!well && end.signal == 0 && end.exit_code != exit_code(ErrorKind::peer)) {
    return {false, text + "; a restart would meet the same error: not restarted"};
  }
  fruitless_ = step > step_ ? 0 : fruitless_ + 1;
  step_ = step;
  const std::string from = step ? fmt::format("the checkpoint of step {}", *step) : "the beginning";
  if (fruitless_ >= kFruitless) {
    return {false, fmt::format("{}; it died {} times in a row without reaching a checkpoint after {}: not "
                               "restarted; save more often or find out what kills it",
                               text, fruitless_, from)};
  }
  if (restarts_ == max_) {
    return {false, fmt::format(
                       "{}; all {} restarts are used up; the same command with --resume auto resumes from {}",
                       text, max_, from)};
  }
  ++restarts_;
  return {true, fmt::format("{}; restart {} of {} from {}", text, restarts_, max_, from)};
}

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        words.back() += c;
      }
      continue;
    }
    const bool space = c == ' ' || c == '\t' || c == '\n';
    if (!space && !in_word) words.emplace_back();
    in_word = !space;
    if (c == '\'' || c == '"') {
      quote = c;
    } else if (!space) {
      words.back() += c;
    }
  }
  require(quote == 0, ErrorKind::usage, "[train] --launcher {}: the quote {} is not closed", text, quote);
  return words;
}

int Supervisor::run() {
  const SignalSet signals;
  Look look = look_at_output(signals.set());
  require(look.output.has_value(), look.kind, "[supervisor] the run was not started: {}", look.problem);
  if (asked_ != 0) {
    say(LogLevel::warning, fmt::format("[supervisor] SIG{}: the run was not started", sigabbrev_np(asked_)));
    return 128 + asked_;
  }
  RestartPolicy policy(options_.max_restarts, look.output->newest_step);
  for (bool restart = false;; restart = true) {
    const int pid = start(options_.arguments(restart, *look.output));
    say(LogLevel::info, fmt::format("[supervisor] the run is process {}", pid));
    ChildEnd end = wait_for(pid, signals.set());
    if (gave_up_) kill(-pid, SIGKILL);  // processes that a launcher has left behind
    if (gave_up_ && end.exit_code != 0) return kSaveDeadlineExit;
    if (end.signal == 0 && end.exit_code == exit_code(ErrorKind::io)) return end_without_look(end, policy);
    look = look_at_output(signals.set());
    if (!look.output) {
      say(LogLevel::error,
          fmt::format("[supervisor] the run {} and is not restarted: {}", describe(end), look.problem));
      return end.exit_code != 0 ? end.exit_code : exit_code(look.kind);
    }
    end.done = look.output->done;
    if (asked_ != 0) return end_asked(end);
    const RestartPolicy::Verdict verdict = policy.after(end, look.output->newest_step);
    if (!verdict.text.empty()) say(LogLevel::warning, verdict.text);
    if (!verdict.restart) return exit_code_of(end);
  }
}

// A disk has failed the run. It is not restarted: looking for its output might hang on the same disk.
int Supervisor::end_without_look(const ChildEnd& end, RestartPolicy& policy) const {
  if (asked_ != 0) return end_asked(end);
  const std::string text = policy.after(end, std::nullopt).text;
  if (!text.empty()) say(LogLevel::warning, text);
  return end.exit_code;
}

// The exit code of a run that was requested to stop.
int Supervisor::end_asked(const ChildEnd& end) const {
  const int code = exit_code_of(end);
  if (code != 0)
    say(LogLevel::warning,
        fmt::format("[supervisor] the run {}{}; it is not restarted after SIG{}", describe(end),
                    end.exit_code == 0 ? kNoResult : "", sigabbrev_np(asked_)));
  return code;
}

// Some launchers, and scripts around them, end with 0 after their ranks died.
int Supervisor::exit_code_of(const ChildEnd& end) const {
  if (end.exit_code == 0 && end.done) return 0;
  if (gave_up_) return kSaveDeadlineExit;
  return end.exit_code == 0 ? exit_code(ErrorKind::peer) : end.exit_code;
}

void Supervisor::say(LogLevel level, const std::string& text) const {
  constexpr auto kMoment = std::chrono::seconds(2);
  try {
    finishes_within(kMoment, [=] { log_line(level, text); });
  } catch (const Error&) {  // no thread could be started
    log_line(level, text);
  }
}

Supervisor::Look Supervisor::look_at_output(const sigset_t& signals) {
  const auto output = std::make_shared<Output>();
  const auto look = [output, ask = options_.output, end = Clock::now() + options_.disk_deadline / 2] {
    constexpr auto kPause = std::chrono::milliseconds(200);
    while (true) {
      try {
        *output = ask();
        return;
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::io || Clock::now() > end) throw;
      }
      std::this_thread::sleep_for(kPause);
    }
  };
  try {
    if (finishes_within(options_.disk_deadline, look, [&] { return asked_again(signals); }))
      return {*output, ""};
  } catch (const Error& error) {
    return {std::nullopt, error.what(), error.kind()};
  }
  if (signals_ > 1) return {std::nullopt, "stopped before the disk of --out responded"};
  return {std::nullopt, fmt::format("the disk of --out has not responded within {:.1f} s (--disk-deadline)",
                                    std::chrono::duration<double>(options_.disk_deadline).count())};
}

// Handles signals while there is no run to pass them on to. Returns true at the second request to stop.
bool Supervisor::asked_again(const sigset_t& signals) {
  constexpr timespec kAtOnce{0, 0};
  const int signal = sigtimedwait(&signals, nullptr, &kAtOnce);
  if (asks_to_stop(signal)) asked_ = signal;
  return asks_to_stop(signal) && counts(signal) && signals_ > 1;
}

int Supervisor::start(const std::vector<std::string>& arguments) {
  const bool launched = !options_.launcher.empty();
  std::vector<std::string> command = options_.launcher;
  command.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
  command.insert(command.end(), arguments.begin(), arguments.end());
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  std::array<int, 2> failed{};
  require(pipe2(failed.data(), O_CLOEXEC) == 0, ErrorKind::io, "[supervisor] cannot create a pipe: {}",
          std::strerror(errno));
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    // A launcher has to end its processes, perhaps on other machines; SIGTERM gives it time for that.
    become(launched ? words[0] : "/proc/self/exe", words.data(), parent, launched ? SIGTERM : SIGKILL,
           failed[1]);
  }
  const int fork_error = errno;
  close(failed[1]);
  int error = 0;
  const bool told = pid > 0 && read(failed[0], &error, sizeof error) == ssize_t(sizeof error);
  close(failed[0]);
  require(pid > 0, ErrorKind::io, "[supervisor] cannot start a process: {}", std::strerror(fork_error));
  if (told) waitpid(pid, nullptr, 0);
  require(!told, ErrorKind::usage, "[supervisor] cannot start {}: {}; is it installed and in PATH?",
          command[0], std::strerror(error));
  return pid;
}

ProcessStat stat_of(int pid) {
  std::string text;
  std::getline(std::ifstream(fmt::format("/proc/{}/stat", pid)), text);
  const size_t name_end = text.rfind(") ");  // the name may contain any characters
  if (name_end == std::string::npos) return {};
  const std::string_view fields = std::string_view(text).substr(name_end + 2);
  constexpr unsigned kExiting = 4;  // PF_EXITING
  char state = 0;
  unsigned flags = 0;  // proc(5): flags are the seventh field from here, the exit status is the last
  std::sscanf(fields.data(), "%c %*d %*d %*d %*d %*d %u", &state, &flags);
  const int exit_status = std::atoi(fields.data() + fields.rfind(' ') + 1);
  return {state, state == 'Z' || (flags & kExiting) != 0, exit_status};
}

bool only_zombies_left(int pid) {
  std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", pid));
  bool any = false;
  for (int child = 0; children >> child;) {
    any = true;
    if (!stat_of(child).ended) return false;
  }
  return any;
}

ChildEnd Supervisor::wait_for(int pid, const sigset_t& signals) {
  const Clock::time_point begin = Clock::now();
  constexpr timespec kSecond{1, 0};
  constexpr int kPatience = 10;
  int status = 0, seconds_left_behind = 0, seconds_kept = 0;
  while (waitpid(pid, &status, WNOHANG) != pid) {
    const int signal = sigtimedwait(&signals, nullptr, &kSecond);
    // mpirun may wait forever after a rank died while it was connecting.
    seconds_left_behind = signal < 0 && only_zombies_left(pid) ? seconds_left_behind + 1 : 0;
    if (seconds_left_behind == kPatience) {
      say(LogLevel::warning,
          fmt::format("[supervisor] {} does not end although all its processes have ended: killing it",
                      options_.launcher.empty() ? "the run" : options_.launcher[0]));
      kill(-pid, SIGKILL);
    }
    if (signal == SIGUSR2) kill(pid, SIGUSR2);  // a request for a checkpoint; launchers pass it on
    if (asks_to_stop(signal)) pass_on(signal, pid);
    if (save_until_ && Clock::now() >= *save_until_) give_up_saving(pid);
    // A thread that hangs on a dead disk may keep a process that has otherwise ended.
    seconds_kept = signal < 0 && stat_of(pid).ended ? seconds_kept + 1 : 0;
    if (seconds_kept < kPatience) continue;
    say(LogLevel::warning,
        "[supervisor] the run has ended, but the kernel still holds it because a thread is stuck: not "
        "waiting for it");
    status = stat_of(pid).exit_status;
    break;
  }
  const auto lasted = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
  ChildEnd end{0, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), lasted};
  // Launchers and shells report a signal this way.
  if (end.exit_code > 128 && end.exit_code < 128 + NSIG) end.signal = end.exit_code - 128;
  return end;
}

// SIGUSR1 is only an early warning, and repeats within a second are one signal.
bool Supervisor::counts(int signal) {
  if (signal == SIGUSR1) return false;
  const Clock::time_point now = Clock::now();
  const bool same = signals_ > 0 && now - last_signal_ < kSameWish;
  last_signal_ = now;
  signals_ += same ? 0 : 1;
  return !same;
}

void Supervisor::pass_on(int signal, int pid) {
  if (signal == SIGUSR1) return ask_to_stop(signal, pid);
  if (!counts(signal) || save_until_) return;  // while the clock runs, saving gets its time
  const bool launched = !options_.launcher.empty();
  if (signals_ == 1) {
    // Ranks have their own clocks, but behind a launcher they get only SIGUSR1, which starts none.
    constexpr auto kForTheRun = std::chrono::seconds(5);  // for the run to end by itself
    if (options_.save_deadline.count() > 0)
      save_until_ = last_signal_ + options_.save_deadline + (launched ? std::chrono::seconds(0) : kForTheRun);
    ask_to_stop(signal, pid);
  } else {
    say(LogLevel::warning, fmt::format("[supervisor] SIG{} again: killing the run", sigabbrev_np(signal)));
    kill(launched && signals_ == 2 ? pid : -pid, launched && signals_ == 2 ? SIGTERM : SIGKILL);
  }
}

void Supervisor::ask_to_stop(int signal, int pid) {
  const bool launched = !options_.launcher.empty();
  kill(pid, launched ? SIGUSR1 : signal);  // launchers pass SIGUSR1 on to the ranks; others would kill them
  const bool kills = signal != SIGUSR1 && !save_until_;
  asked_ = signal;
  say(LogLevel::info, fmt::format("[supervisor] SIG{}: asked the run to stop{}", sigabbrev_np(signal),
                                  kills ? "; signal again to kill it" : ""));
}

void Supervisor::give_up_saving(int pid) {
  constexpr auto kLauncherEnds = std::chrono::seconds(5);
  if (!gave_up_)
    say(LogLevel::warning,
        "[supervisor] --save-deadline: time ran out before everything was saved; resume from the newest "
        "complete checkpoint with --resume auto");
  kill(gave_up_ ? -pid : pid, gave_up_ ? SIGKILL : SIGTERM);  // a launcher may have to end its ranks first
  gave_up_ = true;
  save_until_ = Clock::now() + kLauncherEnds;
}

}  // namespace zeno::train
