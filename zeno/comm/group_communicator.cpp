// The Communicator for CPU streams: queues each operation; a Group runs it on the stream.
#include <utility>

#include "zeno/comm/checked_communicator.h"
#include "zeno/comm/group.h"

namespace zeno::comm {
namespace {

class GroupCommunicator final : public CheckedCommunicator {
 public:
  explicit GroupCommunicator(GroupParts parts)
      : CheckedCommunicator({}, parts.layout.rank, parts.layout.size),
        group_(std::make_shared<Group>(std::move(parts))) {}

  Traffic traffic() const override { return group_->traffic(); }

 private:
  void queue(StreamRef stream, Op op) override {
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
