// What every backend must do, as functions over the World and the device of a Site: the thread tests call
// them on every thread, the MPI test program in every process. A case throws std::runtime_error when the
// contract is broken.
#pragma once

#include <span>

#include "site.h"

namespace zeno::comm::contract {

struct Case {
  const char* name;
  void (*run)(Site& site);
};
std::span<const Case> cases();

}  // namespace zeno::comm::contract
