// Checks the arguments of a collective when it is issued: a wrong call throws Error(usage) at its caller,
// before any rank waits for it.
#pragma once

#include <span>
#include <string_view>

#include "zeno/comm/communicator.h"
#include "zeno/comm/flight/op_record.h"

namespace zeno::comm {

struct CallShape {
  OpKind kind = OpKind::none;
  DType dtype = DType::f32;
  DType recv_dtype = DType::f32;
  bool accumulate = false;
  int root = -1;
  Device device;
  int rank = 0, size = 1;
};

void check_arguments(const CallShape& call, StreamRef stream, std::span<const Part> parts,
                     std::string_view unit);
// An all_to_all with a count for each rank.
void check_exchange(const CallShape& call, StreamRef stream, std::span<const ExchangePart> parts,
                    std::string_view unit);
// send and recv: one part with one buffer.
void check_message(const CallShape& call, StreamRef stream, const Part& part, std::string_view unit);
void check_peer(int peer, int rank, int size, std::string_view what);

}  // namespace zeno::comm
