// Errors that all ranks find out together, such as a data file that none of them can read. One rank tells the
// user for all. No operation is to blame, so no flight records are written.
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
  // Whether this is the rank that tells the user.
  bool tells() const { return tells_; }

 private:
  bool tells_;
};

// Throws the same error on all ranks, which must all call it; `teller` tells the user.
[[noreturn]] void fail_together(const World& world, int teller, ErrorKind kind, const std::string& text);

// Runs `work`, which is not collective, on every rank. If it fails anywhere, all ranks throw the error of the
// lowest rank on which it failed. Collective.
void work_together(World& world, std::string_view what, const std::function<void()>& work);

}  // namespace zeno::comm
