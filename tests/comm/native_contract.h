// What communicators must do whose sums are NCCL's or MPI's own, as cases for a Site with Reduction::native.
// Sums are compared within the rounding of any order of additions, in the dtype of the call.
#pragma once

#include "communicator_contract.h"

namespace zeno::comm::contract {

std::span<const Case> native_cases();

}  // namespace zeno::comm::contract
