// How tests start ranks as processes.
#pragma once

#include <string>

namespace zeno::test {

// Before a command of a shell. Open MPI does not give back all its memory: sanitizers need not say so.
inline const std::string kWithoutLeaks = "env ASAN_OPTIONS=detect_leaks=0 ";

// "mpirun … -n 3 ", as words of a shell; more flags may follow.
inline std::string mpirun(int ranks) {
  return kWithoutLeaks + "mpirun --allow-run-as-root --oversubscribe -n " + std::to_string(ranks) + " ";
}

}  // namespace zeno::test
