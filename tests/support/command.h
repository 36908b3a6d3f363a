// Runs a program as a user would and keeps what it printed and how it ended.
#pragma once

#include <stdio.h>
#include <sys/wait.h>

#include <string>

namespace zeno::test {

inline const std::string kZeno = std::string(ZENO_BINARY_DIR) + "/zeno";

struct CommandResult {
  int exit_code = -1;  // 128 + signal when it was killed
  std::string output;  // stdout and stderr
};

inline CommandResult run_command(const std::string& command) {
  CommandResult result;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return result;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) result.output.append(buffer, n);
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace zeno::test
