#include "zeno/base/leave.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "zeno/base/error.h"
#include "zeno/base/leave_files.h"
#include "zeno/base/log.h"
#include "zeno/base/thread.h"
#include "zeno/base/utf8.h"

namespace zeno {
namespace {

// A thread, not alarm(): the kernel gives that signal to the main thread first, which may be stuck in a disk.
void exit_after(std::chrono::seconds longest, int exit_code) {
  try {
    start_thread([=] {
      std::this_thread::sleep_for(longest);
      leave_files_behind();
      _exit(exit_code);
    }).detach();
  } catch (const Error&) {  // no more threads here: nothing guards the way out
  }
}

}  // namespace

void leave(int exit_code, std::string_view error) {
  // A message may quote text from files: limit its length.
  constexpr size_t kLongestError = 1000;
  exit_after(std::chrono::seconds(10), exit_code);
  leave_files_behind();
  if (!error.empty()) log_error("{}", shortened(error, kLongestError));
  std::fflush(stdout);
  std::quick_exit(exit_code);
}

}  // namespace zeno
