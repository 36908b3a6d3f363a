#include "zeno/train/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/base/within.h"
#include "zeno/train/interrupt.h"

namespace zeno::train {
namespace {

using Clock = std::chrono::steady_clock;

// The signals that a supervisor waits for, kept from it until it asks.
class SignalSet {
 public:
  SignalSet() {
    sigemptyset(&set_);
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&set_, signal);
    struct sigaction hang_up {};
    sigaction(SIGHUP, nullptr, &hang_up);
    if (hang_up.sa_handler != SIG_IGN) sigaddset(&set_, SIGHUP);  // under nohup the run outlives the terminal
    sigprocmask(SIG_BLOCK, &set_, &before_);
  }
  ~SignalSet() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  SignalSet(const SignalSet&) = delete;
  SignalSet& operator=(const SignalSet&) = delete;

  const sigset_t& set() const { return set_; }

 private:
  sigset_t set_{}, before_{};
};

std::string describe(const ChildEnd& end) {
  const double seconds = std::chrono::duration<double>(end.lasted).count();
  if (end.signal == 0) return fmt::format("ended with exit code {} after {:.1f} s", end.exit_code, seconds);
  const char* name = sigabbrev_np(end.signal);
  return fmt::format("was killed by {} after {:.1f} s",
                     name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", end.signal),
                     seconds);
}

// Launchers and scripts around them have been seen to end with 0 after their ranks died.
int exit_code_of(const ChildEnd& end) {
  return end.exit_code == 0 && !end.done ? exit_code(ErrorKind::peer) : end.exit_code;
}

// In the child: becomes the program, or tells `failed` why not. Only calls that are allowed after fork().
[[noreturn]] void become(const char* file, char* const* words, pid_t parent, int death_signal, int failed) {
  prctl(PR_SET_PDEATHSIG, death_signal);
  if (getppid() != parent) _exit(exit_code(ErrorKind::peer));  // it died before it could be followed
  // A group of its own: what a terminal or a launcher sends to the group goes to the supervisor, which passes
  // it on once. Nothing to read, so that no read can stop it in the background.
  setpgid(0, 0);
  if (const int null = open("/dev/null", O_RDONLY); null >= 0) dup2(null, STDIN_FILENO);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
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
  if (well) text += " before everything was saved";
  if (max_ == 0) return {false, well ? text : ""};
  if (!well && end.signal == 0 && end.exit_code != exit_code(ErrorKind::peer)) {
    return {false, text + "; the same error would come again: not restarted"};
  }
  fruitless_ = step > step_ ? 0 : fruitless_ + 1;
  step_ = step;
  const std::string from = step ? fmt::format("the checkpoint of step {}", *step) : "the beginning";
  if (fruitless_ >= kFruitless) {
    return {false, fmt::format("{}; it died {} times in a row without reaching a checkpoint after {}: not "
                               "restarted; save more often or look for what kills it",
                               text, fruitless_, from)};
  }
  if (restarts_ == max_) {
    return {false, fmt::format("{}; all {} restarts are used up; the same command with --resume auto resumes "
                               "from {}",
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
  std::optional<Output> output = look_at_output(signals.set());
  if (!output) return no_answer("the run is not started", exit_code(ErrorKind::io));
  RestartPolicy policy(options_.max_restarts, output->newest_step);
  for (bool restart = false;; restart = true) {
    const int pid = start(options_.arguments(restart, *output));
    log_info("[supervisor] the run is process {}", pid);
    ChildEnd end = wait_for(pid, signals.set());
    if (gave_up_) kill(-pid, SIGKILL);  // what a launcher has left behind
    if (gave_up_) return kSaveDeadlineExit;
    output = look_at_output(signals.set());
    if (!output) {
      const int code = end.exit_code != 0 ? end.exit_code : exit_code(ErrorKind::io);
      return no_answer("the run " + describe(end) + " and is not restarted", code);
    }
    end.done = output->done;
    if (asked_) return exit_code_of(end);
    const RestartPolicy::Verdict verdict = policy.after(end, output->newest_step);
    if (!verdict.text.empty()) log_warning("{}", verdict.text);
    if (!verdict.restart) return exit_code_of(end);
  }
}

// Nothing when the disk does not respond, or somebody asks to stop before it does.
std::optional<Supervisor::Output> Supervisor::look_at_output(const sigset_t& signals) const {
  const auto output = std::make_shared<Output>();
  const auto look = [output, ask = options_.output] { *output = ask(); };
  const auto asked_to_stop = [&signals] {
    constexpr timespec kAtOnce{0, 0};
    const int signal = sigtimedwait(&signals, nullptr, &kAtOnce);
    return signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
  };
  if (!finishes_within(options_.disk_deadline, look, asked_to_stop)) return std::nullopt;
  return *output;
}

int Supervisor::no_answer(const std::string& what, int code) const {
  log_error("[supervisor] {}: the disk of --out has not responded within {:.1f} s (--disk-deadline)", what,
            std::chrono::duration<double>(options_.disk_deadline).count());
  return code;
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
  require(pipe2(failed.data(), O_CLOEXEC) == 0, ErrorKind::io, "[supervisor] no pipe: {}",
          std::strerror(errno));
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    // A launcher has processes to end, perhaps on other machines: SIGTERM leaves it the time.
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
  const size_t name_end = text.rfind(") ");  // the name may hold anything
  if (name_end == std::string::npos) return {};
  const std::string_view fields = std::string_view(text).substr(name_end + 2);
  return {fields[0], std::atoi(fields.data() + fields.rfind(' ') + 1)};  // the first and the last
}

bool only_zombies_left(int pid) {
  std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", pid));
  bool any = false;
  for (int child = 0; children >> child;) {
    any = true;
    if (stat_of(child).state != 'Z') return false;
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
    // mpirun has been seen to wait for ever after a rank died while it was connecting.
    seconds_left_behind = signal < 0 && only_zombies_left(pid) ? seconds_left_behind + 1 : 0;
    if (seconds_left_behind == kPatience) {
      log_warning("[supervisor] {} does not end although all its processes have: killing it",
                  options_.launcher.empty() ? "the run" : options_.launcher[0]);
      kill(-pid, SIGKILL);
    }
    if (signal == SIGUSR2) kill(pid, SIGUSR2);  // a wish for a checkpoint; launchers pass it on
    if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGUSR1) pass_on(signal, pid);
    if (save_until_ && Clock::now() >= *save_until_) give_up_saving(pid);
    // A thread that hangs in a dead disk may keep a process that has ended otherwise.
    seconds_kept = signal < 0 && stat_of(pid).state == 'Z' ? seconds_kept + 1 : 0;
    if (seconds_kept < kPatience) continue;
    log_warning(
        "[supervisor] the run has ended, but the kernel still holds it because a thread is stuck: not "
        "waiting for it");
    status = stat_of(pid).exit_status;
    break;
  }
  const auto lasted = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
  ChildEnd end{0, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), lasted};
  // Launchers and shells tell a signal this way.
  if (end.exit_code > 128 && end.exit_code < 128 + NSIG) end.signal = end.exit_code - 128;
  return end;
}

void Supervisor::pass_on(int signal, int pid) {
  // An early wish: it neither starts the clock nor counts as the first of two signals.
  if (signal == SIGUSR1) return ask_to_stop(signal, pid);
  const Clock::time_point now = Clock::now();
  const bool same = signals_ > 0 && now - last_signal_ < kSameWish;
  last_signal_ = now;
  if (same || save_until_) return;  // while the clock runs, saving has its time
  const bool launched = !options_.launcher.empty();
  if (++signals_ == 1) {
    // Ranks have clocks of their own, but SIGUSR1, which is all that those behind a launcher get, starts
    // none.
    constexpr auto kForTheRun = std::chrono::seconds(5);  // to end by itself
    if (options_.save_deadline.count() > 0)
      save_until_ = now + options_.save_deadline + (launched ? std::chrono::seconds(0) : kForTheRun);
    ask_to_stop(signal, pid);
  } else {
    log_warning("[supervisor] SIG{} again: killing the run", sigabbrev_np(signal));
    kill(launched && signals_ == 2 ? pid : -pid, launched && signals_ == 2 ? SIGTERM : SIGKILL);
  }
}

void Supervisor::ask_to_stop(int signal, int pid) {
  const bool launched = !options_.launcher.empty();
  kill(pid, launched ? SIGUSR1 : signal);  // launchers pass this one on to the ranks, and die of the others
  const bool kills = signal != SIGUSR1 && !save_until_;
  log_info("[supervisor] SIG{}: asked the run to stop{}", sigabbrev_np(signal),
           kills ? "; signal again to kill it" : "");
  asked_ = true;
}

void Supervisor::give_up_saving(int pid) {
  constexpr auto kLauncherEnds = std::chrono::seconds(5);
  if (!gave_up_)
    log_warning(
        "[supervisor] --save-deadline: the time is over and not everything is saved; checkpoints with a "
        "manifest are whole: resume with --resume auto");
  kill(gave_up_ ? -pid : pid, gave_up_ ? SIGKILL : SIGTERM);  // the launcher may have others to end first
  gave_up_ = true;
  save_until_ = Clock::now() + kLauncherEnds;
}

}  // namespace zeno::train
