// The Communicator of every CPU backend: checks the call, copies what it needs, queues it on the stream.
#include <utility>

#include "zeno/comm/arguments.h"
#include "zeno/comm/group.h"

namespace zeno::comm {
namespace {

class GroupCommunicator final : public Communicator {
 public:
  explicit GroupCommunicator(GroupParts parts) : group_(std::make_shared<Group>(std::move(parts))) {}

  int rank() const override { return group_->layout().rank; }
  int size() const override { return group_->layout().size; }

  void all_gather(StreamRef stream, std::span<const Part> parts, DType dtype,
                  std::string_view unit) override {
    queue({.kind = OpKind::all_gather, .dtype = dtype, .recv_dtype = dtype}, stream, parts, unit);
  }
  void reduce_scatter(StreamRef stream, std::span<const Part> parts, DType dtype, DType recv_dtype,
                      bool accumulate, std::string_view unit) override {
    queue(
        {.kind = OpKind::reduce_scatter, .dtype = dtype, .recv_dtype = recv_dtype, .accumulate = accumulate},
        stream, parts, unit);
  }
  void all_reduce(StreamRef stream, std::span<const Part> parts, DType dtype,
                  std::string_view unit) override {
    queue({.kind = OpKind::all_reduce, .dtype = dtype, .recv_dtype = dtype}, stream, parts, unit);
  }
  void broadcast(StreamRef stream, std::span<const Part> parts, DType dtype, int root,
                 std::string_view unit) override {
    queue({.kind = OpKind::broadcast, .dtype = dtype, .recv_dtype = dtype, .root = root}, stream, parts,
          unit);
  }
  void all_to_all(StreamRef stream, std::span<const Part> parts, DType dtype,
                  std::string_view unit) override {
    queue({.kind = OpKind::all_to_all, .dtype = dtype, .recv_dtype = dtype}, stream, parts, unit);
  }
  void barrier(StreamRef stream, std::string_view unit) override {
    queue({.kind = OpKind::barrier, .dtype = DType::u8, .recv_dtype = DType::u8}, stream, {}, unit);
  }

  void send(StreamRef stream, const std::byte* data, int64_t count, DType dtype, int to,
            std::string_view unit) override {
    check_peer(to, rank(), size(), "send");
    queue_message({.kind = OpKind::send, .dtype = dtype, .recv_dtype = dtype, .root = to}, stream,
                  {data, nullptr, count}, unit);
  }
  void recv(StreamRef stream, std::byte* data, int64_t count, DType dtype, int from,
            std::string_view unit) override {
    check_peer(from, rank(), size(), "recv");
    queue_message({.kind = OpKind::recv, .dtype = dtype, .recv_dtype = dtype, .root = from}, stream,
                  {nullptr, data, count}, unit);
  }

  Traffic traffic() const override { return group_->traffic(); }

 private:
  void queue(CallShape call, StreamRef stream, std::span<const Part> parts, std::string_view unit) {
    call.rank = rank();
    call.size = size();
    check_arguments(call, stream, parts, unit);
    launch(call, stream, parts, unit);
  }
  void queue_message(const CallShape& call, StreamRef stream, const Part& part, std::string_view unit) {
    check_message(call, stream, part, unit);
    launch(call, stream, {&part, 1}, unit);
  }
  void launch(const CallShape& call, StreamRef stream, std::span<const Part> parts, std::string_view unit) {
    Op op;
    op.record = make_record(call.kind, parts, call.dtype, call.root, unit);
    op.parts.assign(parts.begin(), parts.end());
    op.recv_dtype = call.recv_dtype;
    op.accumulate = call.accumulate;
    group_->issue(op);
    stream.launch([group = group_, op = std::move(op)](Workers& workers) { group->run(op, workers); });
  }

  // Shared with the queued operations, which may outlive this handle when an exception unwinds.
  std::shared_ptr<Group> group_;
};

}  // namespace

std::unique_ptr<Communicator> make_group_communicator(GroupParts parts) {
  return std::make_unique<GroupCommunicator>(std::move(parts));
}

}  // namespace zeno::comm
