// The start of MPI, with a word of ours where it would end the process (no launcher answers) or wait for ever
// (a process does not come).
#pragma once

#include <chrono>

namespace zeno::comm {

// Initialises MPI, unless somebody did already. Error(usage) when this process was not started in a way that
// lets MPI find the others, or MPI cannot be called from several threads. A start that takes longer than
// `deadline` ends the process with the exit code of a lost peer, for there is no way to take it back.
void start_mpi(std::chrono::milliseconds deadline);

}  // namespace zeno::comm
