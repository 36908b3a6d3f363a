// One rank of a test, as a process that mpirun starts: ends as the command line would, and says so.
#pragma once

#include <fmt/core.h>

#include <functional>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/comm/world.h"

namespace zeno::comm {

// `at`: what `body` was doing last.
inline int run_rank_process(const WorldOptions& options, const std::function<void(World&)>& body,
                            const char* const& at) {
  const int rank = launch_info().rank;
  set_log_level(LogLevel::error);
  try {
    run_mpi_rank(options, body);
    fmt::print("rank {} is done\n", rank);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "rank {} exits with {}: {} [{}]\n", rank, exit_code(error.kind()), error.what(), at);
    return exit_code(error.kind());
  } catch (const std::exception& error) {
    fmt::print(stderr, "rank {} exits with 1: {} [{}]\n", rank, error.what(), at);
    return 1;
  }
}

}  // namespace zeno::comm
