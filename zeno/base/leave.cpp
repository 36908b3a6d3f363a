#include "zeno/base/leave.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <atomic>

#include <unistd.h>

#include "zeno/base/log.h"
#include "zeno/base/utf8.h"

namespace zeno {
namespace {

std::atomic<int> last_exit_code{1};
static_assert(std::atomic<int>::is_always_lock_free);

}  // namespace

void leave(int exit_code, std::string_view error) {
  constexpr unsigned kLongest = 10;  // seconds
  // A message may quote what somebody else wrote: a line is all that anybody reads.
  constexpr size_t kLongestError = 1000;
  last_exit_code = exit_code;
  std::signal(SIGALRM, [](int) { _exit(last_exit_code); });
  sigset_t alarms;
  sigemptyset(&alarms);
  sigaddset(&alarms, SIGALRM);
  pthread_sigmask(SIG_UNBLOCK, &alarms, nullptr);
  alarm(kLongest);
  if (!error.empty()) log_error("{}", shortened(error, kLongestError));
  std::fflush(stdout);
  std::quick_exit(exit_code);
}

}  // namespace zeno
