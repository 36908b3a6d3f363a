// Programs that run beside a test, which may kill them.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "zeno/train/supervisor.h"

namespace zeno::test {

// Empty where there is no such file, or where it goes while it is read: /proc of a process that ends.
inline std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// A program in a group of its own; what it prints goes to a file.
class Job {
 public:
  Job(const std::string& command, const std::string& log) : pid_(fork()) {
    if (pid_ != 0) return;
    setpgid(0, 0);
    execl("/bin/sh", "sh", "-c", ("exec " + command + " >" + log + " 2>&1").c_str(), nullptr);
    _exit(127);
  }
  ~Job() {
    if (pid_ < 0) return;
    kill(-pid_, SIGKILL);
    wait(std::chrono::seconds(20));
  }
  Job(const Job&) = delete;

  pid_t pid() const { return pid_; }
  std::vector<pid_t> children() const {
    std::vector<pid_t> found;
    std::error_code ignored;
    for (const auto& thread :
         std::filesystem::directory_iterator("/proc/" + std::to_string(pid_) + "/task", ignored)) {
      std::ifstream list(thread.path() / "children");
      found.insert(found.end(), std::istream_iterator<pid_t>(list), std::istream_iterator<pid_t>());
    }
    return found;
  }
  bool ended() {
    if (pid_ > 0 && (waitpid(pid_, &status_, WNOHANG) == pid_ || is_held())) pid_ = -1;
    return pid_ < 0;
  }
  // Its exit code; -1 when it runs for longer.
  int wait(std::chrono::seconds longest) {
    const auto end = std::chrono::steady_clock::now() + longest;
    while (!ended() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (pid_ > 0) return -1;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }

 private:
  // It has ended, but for a thread whose transfer the kernel does not take back: for half a second now.
  bool is_held() {
    const train::ProcessStat stat = train::stat_of(pid_);
    const auto now = std::chrono::steady_clock::now();
    if (!stat.ended) zombie_since_ = now;
    status_ = stat.exit_status;
    return now - zombie_since_ > std::chrono::milliseconds(500);
  }

  pid_t pid_;
  int status_ = 0;
  std::chrono::steady_clock::time_point zombie_since_ = std::chrono::steady_clock::now();
};

}  // namespace zeno::test
