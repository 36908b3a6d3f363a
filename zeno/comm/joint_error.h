// Errors that all ranks find out together, such as a data file that none of them can read. One rank tells the
// user for all; and since no operation of a rank is to blame, none is recorded.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "zeno/base/error.h"
#include "zeno/comm/world.h"

namespace zeno::comm {

class JointError : public Error {
 public:
  JointError(ErrorKind kind, const std::string& message, bool tells) : Error(kind, message), tells_(tells) {}
  // Is this the rank that tells the user?
  bool tells() const { return tells_; }

 private:
  bool tells_;
};

// Throws the same error on all ranks; they know it already, and `teller` tells the user.
[[noreturn]] void fail_together(const World& world, int teller, ErrorKind kind, const std::string& text);

// Runs `work`, which is not collective, on every rank. Where it fails, all ranks throw the error of the
// lowest such rank. Collective.
void work_together(World& world, std::string_view what, const std::function<void()>& work);

}  // namespace zeno::comm
