// Threads whose errors say why they cannot be started: limits on processes are common in containers, and what
// the library throws names neither the limit nor the way out.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "zeno/base/error.h"

namespace zeno {

template <typename Body>
std::thread start_thread(Body&& body) {
  try {
    return std::thread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    fail(ErrorKind::memory,
         "[threads] cannot start a thread: {}; allow more (ulimit -u, ulimit -v, the pids of the container)",
         error.what());
  }
}

}  // namespace zeno
