// The way out of a program that has failed.
#pragma once

#include <string_view>

namespace zeno {

// Says `error`, when there is one, and ends the process with this exit code: without destructors, since
// threads that are stuck may still use what they would destroy, and within seconds, even if the terminal or
// whatever at_quick_exit has to do hangs.
[[noreturn]] void leave(int exit_code, std::string_view error = {});

}  // namespace zeno
