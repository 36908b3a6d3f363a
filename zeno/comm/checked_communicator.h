// The front of every communicator: checks the call, collects what it needs in an Op, and hands that to the
// backend.
#pragma once

#include "zeno/comm/arguments.h"
#include "zeno/comm/rendezvous.h"

namespace zeno::comm {

class CheckedCommunicator : public Communicator {
 public:
  // Its streams must be on `device`.
  CheckedCommunicator(Device device, int rank, int size) : device_(device), rank_(rank), size_(size) {}

  int rank() const final { return rank_; }
  int size() const final { return size_; }

  void all_gather(StreamRef stream, std::span<const Part> parts, DType dtype, std::string_view unit) final;
  void reduce_scatter(StreamRef stream, std::span<const Part> parts, DType dtype, DType recv_dtype,
                      bool accumulate, std::string_view unit) final;
  void all_reduce(StreamRef stream, std::span<const Part> parts, DType dtype, std::string_view unit) final;
  void broadcast(StreamRef stream, std::span<const Part> parts, DType dtype, int root,
                 std::string_view unit) final;
  void all_to_all(StreamRef stream, std::span<const Part> parts, DType dtype, std::string_view unit) final;
  void all_to_all(StreamRef stream, std::span<const ExchangePart> parts, DType dtype,
                  std::string_view unit) final;
  void send(StreamRef stream, const std::byte* data, int64_t count, DType dtype, int to,
            std::string_view unit) final;
  void recv(StreamRef stream, std::byte* data, int64_t count, DType dtype, int from,
            std::string_view unit) final;
  void barrier(StreamRef stream, std::string_view unit) final;

 protected:
  // Called with checked arguments; the operation has no number yet.
  virtual void queue(StreamRef stream, Op op) = 0;

 private:
  CallShape at_home(CallShape call) const;
  void check_and_queue(const CallShape& call, StreamRef stream, std::span<const Part> parts,
                       std::string_view unit);

  Device device_;
  int rank_, size_;
};

}  // namespace zeno::comm
