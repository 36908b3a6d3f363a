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

void CheckedCommunicator::all_to_all(StreamRef stream, std::span<const ExchangePart> parts, DType dtype,
                                     std::string_view unit) {
  const CallShape call = at_home({.kind = OpKind::all_to_all, .dtype = dtype, .recv_dtype = dtype});
  check_exchange(call, stream, parts, unit);
  Op op;
  op.recv_dtype = dtype;
  op.unequal = true;
  for (const ExchangePart& part : parts) {
    op.exchanges.emplace_back(part.send_counts, part.recv_counts);
    op.parts.push_back({part.send, part.recv, op.exchanges.back().sent.total()});
  }
  op.record = make_exchange_record(op.parts, dtype, unit);
  queue(stream, std::move(op));
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

CallShape CheckedCommunicator::at_home(CallShape call) const {
  call.device = device_;
  call.rank = rank_;
  call.size = size_;
  return call;
}

void CheckedCommunicator::check_and_queue(const CallShape& shape, StreamRef stream,
                                          std::span<const Part> parts, std::string_view unit) {
  const CallShape call = at_home(shape);
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
  for (size_t p = 0; p < parts.size() && call.kind == OpKind::all_to_all; ++p) {
    const std::vector<int64_t> equal(size_t(size_), parts[p].count);
    op.exchanges.emplace_back(equal, equal);
  }
  queue(stream, std::move(op));
}

}  // namespace zeno::comm
