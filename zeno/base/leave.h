// The way out of a program that has failed.
#pragma once

#include <string_view>

namespace zeno {

// Prints `error`, if there is one, and ends the process with this exit code: without destructors, since
// threads that are stuck may still use what they would destroy, and within 10 s, even if the terminal, the
// log's disk or an exit handler hangs. Any thread may call it.
[[noreturn]] void leave(int exit_code, std::string_view error = {});

}  // namespace zeno
