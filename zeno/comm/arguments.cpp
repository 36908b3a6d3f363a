#include "zeno/comm/arguments.h"

#include "zeno/base/error.h"

namespace zeno::comm {
namespace {

struct Range {
  uintptr_t begin, end;
  Range(const std::byte* data, int64_t elements, DType dtype)
      : begin(reinterpret_cast<uintptr_t>(data)), end(begin + size_t(elements) * size_of(dtype)) {}
  bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
};

class Checker {
 public:
  Checker(const CallShape& call, std::string_view unit) : call_(call), unit_(unit) {}

  void check(const Part& part) const {
    expect(part.count >= 0, "a negative count");
    if (part.count == 0 || call_.kind == OpKind::barrier) return;
    const bool sends = call_.kind != OpKind::broadcast || call_.rank == call_.root;
    const auto aligned = [](const std::byte* p, DType dtype) {
      return reinterpret_cast<uintptr_t>(p) % size_of(dtype) == 0;
    };
    expect(part.recv != nullptr && (!sends || part.send != nullptr), "a null buffer");
    expect(aligned(part.recv, call_.recv_dtype) && (!sends || aligned(part.send, call_.dtype)),
           "a buffer that is not aligned to its elements");
    if (sends) check_overlap(part);
  }

  void check(const ExchangePart& part) const {
    const size_t ranks = size_t(call_.size), self = size_t(call_.rank);
    expect(part.send_counts.size() == ranks && part.recv_counts.size() == ranks,
           "not as many counts as there are ranks");
    const int64_t sent = total(part.send_counts), received = total(part.recv_counts);
    expect(part.send_counts[self] == part.recv_counts[self],
           "a count for this rank itself that is not what it expects of itself");
    const auto usable = [&](const std::byte* p, int64_t elements) {
      return elements == 0 || (p != nullptr && reinterpret_cast<uintptr_t>(p) % size_of(call_.dtype) == 0);
    };
    expect(usable(part.send, sent) && usable(part.recv, received),
           "a buffer that is null or not aligned to its elements");
    const bool apart = !Range(part.send, sent, call_.dtype).overlaps(Range(part.recv, received, call_.dtype));
    expect(sent == 0 || received == 0 || apart, "buffers that overlap");
  }

 private:
  int64_t total(std::span<const int64_t> counts) const {
    int64_t sum = 0;
    for (const int64_t count : counts) {
      expect(count >= 0, "a negative count");
      sum += count;
    }
    return sum;
  }

  void check_overlap(const Part& part) const {
    const int64_t n = call_.size;
    const bool send_all = call_.kind == OpKind::reduce_scatter || call_.kind == OpKind::all_to_all;
    const bool recv_all = call_.kind == OpKind::all_gather || call_.kind == OpKind::all_to_all;
    const Range send(part.send, part.count * (send_all ? n : 1), call_.dtype);
    const Range recv(part.recv, part.count * (recv_all ? n : 1), call_.recv_dtype);
    if (!send.overlaps(recv)) return;
    const size_t shift = size_t(call_.rank) * size_t(part.count) * size_of(call_.dtype);
    bool in_place = call_.dtype == call_.recv_dtype && !call_.accumulate;
    switch (call_.kind) {
      case OpKind::all_gather:
        in_place &= part.send == part.recv + shift;
        break;
      case OpKind::reduce_scatter:
        in_place &= part.recv == part.send + shift;
        break;
      case OpKind::all_reduce:
      case OpKind::broadcast:
        in_place &= part.send == part.recv;
        break;
      default:
        in_place = false;
    }
    expect(in_place, "buffers that overlap, but not in the place where the call works in place");
  }

  void expect(bool ok, std::string_view problem) const {
    require(ok, ErrorKind::usage, "[comm] {} of unit {}: got {} (see communicator.h)", name_of(call_.kind),
            unit_, problem);
  }

  const CallShape& call_;
  std::string_view unit_;
};

void check_stream(const CallShape& call, StreamRef stream, std::string_view unit) {
  require(stream.device() == call.device, ErrorKind::usage,
          "[comm] {} of unit {}: stream '{}' is on {}, expected one on {}", name_of(call.kind), unit,
          stream.name(), describe(stream.device()), describe(call.device));
}

}  // namespace

void check_arguments(const CallShape& call, StreamRef stream, std::span<const Part> parts,
                     std::string_view unit) {
  check_stream(call, stream, unit);
  const bool sums = call.kind == OpKind::reduce_scatter || call.kind == OpKind::all_reduce;
  require(!sums || (is_float(call.dtype) && is_float(call.recv_dtype)), ErrorKind::usage,
          "[comm] {} of unit {}: got {} into {}, expected floating types", name_of(call.kind), unit,
          name_of(call.dtype), name_of(call.recv_dtype));
  require(call.kind != OpKind::broadcast || (call.root >= 0 && call.root < call.size), ErrorKind::usage,
          "[comm] broadcast of unit {}: got root {}, expected 0 to {}", unit, call.root, call.size - 1);
  const Checker checker(call, unit);
  for (const Part& part : parts) checker.check(part);
}

void check_exchange(const CallShape& call, StreamRef stream, std::span<const ExchangePart> parts,
                    std::string_view unit) {
  check_stream(call, stream, unit);
  const Checker checker(call, unit);
  for (const ExchangePart& part : parts) checker.check(part);
}

void check_message(const CallShape& call, StreamRef stream, const Part& part, std::string_view unit) {
  check_stream(call, stream, unit);
  const std::byte* data = call.kind == OpKind::send ? part.send : part.recv;
  require(part.count >= 0 && (part.count == 0 || data != nullptr), ErrorKind::usage,
          "[comm] {} of unit {}: got a null buffer or a negative count ({})", name_of(call.kind), unit,
          part.count);
}

void check_peer(int peer, int rank, int size, std::string_view what) {
  require(peer >= 0 && peer < size && peer != rank, ErrorKind::usage,
          "[comm] {}: got rank {}, expected another rank of 0 to {}", what, peer, size - 1);
}

}  // namespace zeno::comm
