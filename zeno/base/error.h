// The one exception tree of Zeno. The library throws, never exits; the command line maps the kind to an exit
// code. A message reads `[where] what: got X, expected Y; what to do`.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace zeno {

enum class ErrorKind {
  internal,  // a bug of ours
  usage,     // flags or config
  data,      // model folder, dataset, checkpoint contents
  memory,    // the plan does not fit
  io,        // the operating system refused a file operation
  peer,      // another rank died, stalled or diverged
};

// Exit code of the command line for a kind (docs: 1 internal, 2 usage, 3 data, 4 memory, 5 io, 6 peer).
int exit_code(ErrorKind kind);

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

// For input of the user: throws an Error of `kind` when `ok` is false. Stays on in release builds.
template <class... Args>
void require(bool ok, ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) [[unlikely]]
    throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

// For our own invariants: throws an internal Error.
template <class... Args>
void ensure(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) [[unlikely]]
    throw Error(ErrorKind::internal, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace zeno
