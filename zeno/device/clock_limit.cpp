#include "zeno/device/clock_limit.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/base/thread.h"

namespace zeno {
namespace {

// One clock every 100 ms. The first seconds are those of a GPU that comes from idling.
constexpr size_t kSkipped = 30, kSeen = 60;
// A driver that does not answer for so long will not: the run must not wait for it.
constexpr std::chrono::seconds kPatience(30);

// The keeper; $0 is nvidia-smi, $1 the GPU. Whatever ends the run closes the keeper's input, every `read`
// returns, and the clock is freed, so that the GPU is not left slower than before.
constexpr const char* kKeeper = R"(
trap '' PIPE
gpu=$1
free() { "$0" -i "$gpu" -rgc; }
said=$(free 2>&1) || { echo $said; exit; }
echo may
read begin || exit
"$0" -i "$gpu" --query-gpu=clocks.sm --format=csv,noheader,nounits -lms 100 &
read clock
kill $!
[ "$clock" ] || exit
said=$("$0" -i "$gpu" -lgc "0,$clock" 2>&1) || echo $said
read end
free > /dev/null
)";

// In a session of its own: what kills the run's group must not kill it.
pid_t start_keeper(const std::string& tool, const std::string& gpu, int socket) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_adddup2(&files, socket, stream);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
  const char* words[] = {"sh", "-c", kKeeper, tool.c_str(), gpu.c_str(), nullptr};
  pid_t pid = -1;
  const int error =
      posix_spawn(&pid, "/bin/sh", &files, &attributes, const_cast<char* const*>(words), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error == 0 ? pid : -1;
}

}  // namespace

int sustained_clock(std::vector<int> seen) {
  const auto tenth = seen.begin() + long(seen.size() / 10);
  std::nth_element(seen.begin(), tenth, seen.end());
  return *tenth;
}

ClockLimit::ClockLimit(const std::string& gpu, const std::string& tool) : gpu_(gpu) {
  int ends[2];
  require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, ErrorKind::io,
          "[gpu] cannot open a socket: {}", std::strerror(errno));
  socket_ = ends[0];
  keeper_ = start_keeper(tool, gpu, ends[1]);
  close(ends[1]);
  pollfd answer{.fd = socket_, .events = POLLIN, .revents = 0};
  const bool answers = poll(&answer, 1, int(std::chrono::milliseconds(kPatience).count())) > 0;
  const std::string said = answers ? receive() : "no answer";
  if (said == "may") return;
  end();
  fail(ErrorKind::usage,
       "[gpu] --limit-gpu-clock: nvidia-smi cannot set the clock of {}: {}; run as root, or leave it out",
       gpu, said.empty() ? "it does not start" : said);
}

ClockLimit::~ClockLimit() { end(); }

void ClockLimit::begin() {
  send("begin");
  watcher_ = start_thread([this, rank = log_rank()] {
    set_log_rank(rank);
    watch();
  });
}

void ClockLimit::watch() {
  std::vector<int> seen;
  while (clock_ == 0) {
    const std::string line = receive();
    if (line.empty()) return;
    int clock = 0;
    std::from_chars(line.data(), line.data() + line.size(), clock);
    if (clock <= 0) {
      log_warning("[gpu] --limit-gpu-clock: cannot read the clock of {}: {}; it is not limited", gpu_, line);
      return;
    }
    seen.push_back(clock);
    if (seen.size() < kSkipped + kSeen) continue;
    seen.erase(seen.begin(), seen.begin() + kSkipped);
    clock_ = sustained_clock(std::move(seen));
    send(std::to_string(clock_));
  }
  log_info("[gpu] clock of {} limited to {} MHz, where its power cap lets it settle, until the run ends",
           gpu_, clock_.load());
  // Clocks that were on their way may still arrive, anything else is a complaint.
  for (std::string line; !(line = receive()).empty();) {
    if (line.find_first_not_of("0123456789") != std::string::npos) log_warning("[gpu] {}", line);
  }
}

void ClockLimit::send(const std::string& line) const {
  const std::string bytes = line + "\n";
  ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);  // a keeper that is gone needs no word
}

std::string ClockLimit::receive() {
  char bytes[4096];
  size_t end;
  while ((end = received_.find('\n')) == std::string::npos) {
    const ssize_t count = recv(socket_, bytes, sizeof bytes, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::exchange(received_, "");
    received_.append(bytes, size_t(count));
  }
  const std::string line = received_.substr(0, end);
  received_.erase(0, end + 1);
  return line;
}

void ClockLimit::end() {
  shutdown(socket_, SHUT_RDWR);
  if (watcher_.joinable()) watcher_.join();
  close(socket_);
  const auto patience = std::chrono::steady_clock::now() + kPatience;
  while (keeper_ > 0 && waitpid(keeper_, nullptr, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > patience)
      return log_warning(
          "[gpu] nvidia-smi does not end; the clock of {} may still be limited: nvidia-smi -rgc frees it",
          gpu_);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace zeno
