// Starts MPI, with an error message of our own where MPI would end the process (no launcher answers) or wait
// forever (a process does not arrive).
#pragma once

#include <chrono>

namespace zeno::comm {

// Initialises MPI unless that is done already. Error(usage) when this process was not started in a way that
// lets MPI find the others, or MPI cannot be called from several threads. A start that takes longer than
// `deadline` ends the process with the exit code of a lost peer, because it cannot be cancelled.
void start_mpi(std::chrono::milliseconds deadline);

}  // namespace zeno::comm
