// Flags that keep the defaults of `zeno train` out of a test: no planner, and a constant rate at which small
// random models learn. What the test says itself wins, and a config file says the rest.
#pragma once

#include <string>

namespace zeno::test {

// To be added to `flags`, which are the others of the command.
inline std::string plain_flags(const std::string& flags) {
  const auto has = [&](const std::string& flag) {
    return (flags + " ").find(flag + " ") != std::string::npos;
  };
  std::string plain = has("--auto") ? " " : " --no-auto ";
  if (has("--config")) return plain;
  if (!has("--lr")) plain += "--lr 1e-3 ";
  if (!has("--schedule"))
    plain += "--schedule constant ";
  else if (!has("--warmup"))
    plain += "--warmup 0 ";
  return plain;
}

}  // namespace zeno::test
