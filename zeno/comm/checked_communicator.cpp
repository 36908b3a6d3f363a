#include "zeno/comm/checked_communicator.h"

#include <utility>

namespace zeno::comm {

void CheckedCommunicator::all_gather(StreamRef stream, std::span<const Part> parts, DType dtype,
                                     std::string_view unit) {
  check_and_queue({.kind = OpKind::all_gather, .dtype = dtype, .recv_dtype = dtype}, stream, parts, unit);
}

void CheckedCommunicator::reduce_scatter(StreamRef stream, std::span<const Part> parts, DType dtype,
                                         DType recv_dtype, bool accumulate, std::string_view unit) {
  check_and_queue(
      {.kind = OpKind::reduce_scatter, .dtype = dtype, .recv_dtype = recv_dtype, .accumulate = accumulate},
      stream, parts, unit);
}

void CheckedCommunicator::all_reduce(StreamRef stream, std::span<const Part> parts, DType dtype,
                                     std::string_view unit) {
  check_and_queue({.kind = OpKind::all_reduce, .dtype = dtype, .recv_dtype = dtype}, stream, parts, unit);
}

void CheckedCommunicator::broadcast(StreamRef stream, std::span<const Part> parts, DType dtype, int root,
                                    std::string_view unit) {
  check_and_queue({.kind = OpKind::broadcast, .dtype = dtype, .recv_dtype = dtype, .root = root}, stream,
                  parts, unit);
}

void CheckedCommunicator::all_to_all(StreamRef stream, std::span<const Part> parts, DType dtype,
                                     std::string_view unit) {
  check_and_queue({.kind = OpKind::all_to_all, .dtype = dtype, .recv_dtype = dtype}, stream, parts, unit);
}

void CheckedCommunicator::barrier(StreamRef stream, std::string_view unit) {
  check_and_queue({.kind = OpKind::barrier, .dtype = DType::u8, .recv_dtype = DType::u8}, stream, {}, unit);
}

void CheckedCommunicator::send(StreamRef stream, const std::byte* data, int64_t count, DType dtype, int to,
                               std::string_view unit) {
  check_peer(to, rank_, size_, "send");
  const Part part{data, nullptr, count};
  check_and_queue({.kind = OpKind::send, .dtype = dtype, .recv_dtype = dtype, .root = to}, stream, {&part, 1},
                  unit);
}

void CheckedCommunicator::recv(StreamRef stream, std::byte* data, int64_t count, DType dtype, int from,
                               std::string_view unit) {
  check_peer(from, rank_, size_, "recv");
  const Part part{nullptr, data, count};
  check_and_queue({.kind = OpKind::recv, .dtype = dtype, .recv_dtype = dtype, .root = from}, stream,
                  {&part, 1}, unit);
}

void CheckedCommunicator::check_and_queue(CallShape call, StreamRef stream, std::span<const Part> parts,
                                          std::string_view unit) {
  call.device = device_;
  call.rank = rank_;
  call.size = size_;
  if (call.kind == OpKind::send || call.kind == OpKind::recv) {
    check_message(call, stream, parts[0], unit);
  } else {
    check_arguments(call, stream, parts, unit);
  }
  Op op;
  op.record = make_record(call.kind, parts, call.dtype, call.root, unit);
  op.parts.assign(parts.begin(), parts.end());
  op.recv_dtype = call.recv_dtype;
  op.accumulate = call.accumulate;
  queue(stream, std::move(op));
}

}  // namespace zeno::comm
