#include "zeno/comm/cuda/nccl_group.h"

#include <algorithm>
#include <cstring>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/base/math.h"
#include "zeno/comm/checked_communicator.h"
#include "zeno/comm/cuda/reduce_tree.h"

namespace zeno::comm {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(10);

// Sets the device before the members that follow make their handles.
GroupParts for_nccl(Device device, GroupParts parts) {
  cuda::check(cudaSetDevice(device.index), "choose the device");
  return parts;
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cuda::check(cudaStreamIsCapturing(stream, &status), "ask for a capture");
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

NcclGroup::NcclGroup(GroupParts parts, Device device, const Exchange& exchange,
                     std::shared_ptr<NcclMemory> memory)
    : Rendezvous(for_nccl(device, std::move(parts))),
      device_(device),
      memory_(std::move(memory)),
      token_(allocator_of(device)(size_t(layout().size))),
      sends_(size_t(layout().size)),
      recvs_(size_t(layout().size)) {
  require(layout().size <= int(kMostTreeInputs) || parts_.reduction == Reduction::native, ErrorKind::usage,
          "[comm] got {} ranks, expected at most {} on CUDA; native sums have no such limit", layout().size,
          kMostTreeInputs);
  try {
    connect(exchange);
  } catch (...) {
    token_.release(token_.data);
    throw;
  }
  watchdog_ = std::jthread([this](std::stop_token stop) { watch(std::move(stop)); });
}

NcclGroup::~NcclGroup() {
  watchdog_.request_stop();
  watchdog_.join();
  const bool well = !error_ && std::uncaught_exceptions() == exceptions_ && !parts_.watch->poll();
  if (well) comm_->close();
  comm_.reset();
  token_.release(token_.data);
  if (staging_.data != nullptr) staging_.release(staging_.data);
}

void NcclGroup::connect(const Exchange& exchange) {
  Start start;
  if (layout().rank == 0) {
    check_nccl(ncclGetUniqueId(&start.id), "make a unique id");
    start.staging_bytes = parts_.device_staging_bytes;
  }
  const std::string first = exchange({reinterpret_cast<const char*>(&start), sizeof start}).front();
  std::memcpy(&start, first.data(), sizeof start);
  const size_t least = size_t(layout().size) * kSlotAlign;  // a slot of each rank
  half_bytes_ = round_up(std::max(size_t(start.staging_bytes) / 2, least), kSlotAlign);
  OpWait wait(*parts_.watch, parts_.deadline,
              {[this] { return fmt::format("the making of communicator '{}'", parts_.name); },
               [] { return "NCCL has not connected all ranks"; }});
  comm_ = std::make_unique<NcclComm>(
      NcclComm::Place{start.id, layout().rank, layout().size, layout().world_rank()}, memory_, wait);
}

uint64_t NcclGroup::next_number(const OpRecord& record) {
  if (record.kind == OpKind::send) return ++sends_[size_t(record.root)];
  if (record.kind == OpKind::recv) return ++recvs_[size_t(record.root)];
  return ++collectives_;
}

void NcclGroup::run(StreamRef stream, Op op) {
  cuda::check(cudaSetDevice(device_.index), "choose the device");
  enlist(op, next_number(op.record));
  OpWait wait = patience(op.record);
  try {
    poll();
    wait.check_failure();
    if (op.record.kind == OpKind::send || op.record.kind == OpKind::recv) {
      run_message(op, cuda::native(stream), wait);
    } else {
      run_collective(op, cuda::native(stream), wait);
    }
  } catch (const std::exception& error) {
    tell(error);
    comm_->abort();  // peers and kernels of this device must not go on waiting
    throw;
  }
  count_traffic(op);
}

void NcclGroup::run_collective(const Op& op, cudaStream_t stream, OpWait& wait) {
  agree_on_all(op, wait);
  for (const Part& part : op.parts) {
    if (part.send != nullptr) comm_->use(part.send);
    if (part.recv != nullptr) comm_->use(part.recv);
  }
  follow(op, stream, [&] { NcclMover(*this, op, stream, wait).run(); });
  board_.part(wait);
  board_.set_done(op.record);
}

void NcclGroup::agree_on_all(const Op& op, OpWait& wait) {
  size_t begin = 0;
  do {
    if (begin > 0) board_.part(wait);
    const size_t size = std::min(op.exchanges.size() - begin, size_t(Board::kMostParts));
    agree(op, {}, exchanges_of(op, begin, size), wait);
    begin += size;
  } while (begin < op.exchanges.size());
}

// Hosts compare messages as well: the sender announces what it sends, and the receiver waits for that before
// it starts.
void NcclGroup::run_message(const Op& op, cudaStream_t stream, OpWait& wait) {
  const Part& part = op.parts[0];
  const int peer = op.record.root;
  const size_t bytes = size_t(part.count) * size_of(op.record.dtype);
  const bool sends = op.record.kind == OpKind::send;
  sends ? announce(op, wait) : expect(op, wait);
  follow(op, stream, [&] {
    if (bytes == 0) return;
    comm_->group(
        [&](ncclComm_t comm) {
          check_nccl(sends ? ncclSend(part.send, bytes, ncclUint8, peer, comm, stream)
                           : ncclRecv(part.recv, bytes, ncclUint8, peer, comm, stream),
                     "move a message");
        },
        wait);
  });
}

void NcclGroup::announce(const Op& op, OpWait& wait) {
  const int to = local_index_of(op.record.root);
  if (to < 0) {
    const auto batch = parts_.link->batch(Channel::point_to_point);
    batch->send(op.record.root, reinterpret_cast<const std::byte*>(&op.record), sizeof op.record);
    return complete(*batch, wait);
  }
  Mailbox& box = board_.mailbox(board_.me(), to);
  const uint64_t written = box.written.load();
  box.bell.wait_until([&] { return written - box.read.load() < Mailbox::kChunks; }, wait, board_.spins());
  box.chunks[written % Mailbox::kChunks].record = op.record;
  box.written.store(written + 1);
  box.bell.ring();
}

void NcclGroup::expect(const Op& op, OpWait& wait) {
  OpRecord theirs;
  const int from = local_index_of(op.record.root);
  if (from < 0) {
    const auto batch = parts_.link->batch(Channel::point_to_point);
    batch->receive(op.record.root, reinterpret_cast<std::byte*>(&theirs), sizeof theirs);
    complete(*batch, wait);
  } else {
    Mailbox& box = board_.mailbox(from, board_.me());
    const uint64_t read = box.read.load();
    box.bell.wait_until([&] { return box.written.load() > read; }, wait, board_.spins());
    theirs = box.chunks[read % Mailbox::kChunks].record;
    box.read.store(read + 1);
    box.bell.ring();
  }
  check_message(op, theirs, wait);
}

// A captured operation runs later, any number of times, so there is nothing to follow.
template <class Launch>
void NcclGroup::follow(const Op& op, cudaStream_t stream, const Launch& launch) {
  const bool captured = is_capturing(stream);
  if (!captured) {
    const std::scoped_lock lock(state_mutex_);
    ops_.begin(op.record, op.flight, stream);
  }
  launch();
  if (captured) return parts_.recorder->done(op.flight);
  const std::scoped_lock lock(state_mutex_);
  ops_.end(stream);
}

void NcclGroup::poll() {
  const std::scoped_lock lock(state_mutex_);
  if (error_) std::rethrow_exception(error_);
}

void NcclGroup::watch(std::stop_token stop) {
  set_log_rank(layout().world_rank());
  cudaSetDevice(device_.index);
  // Queries of events must not invalidate a graph that another thread is capturing.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  std::unique_lock lock(state_mutex_);
  while (!stop.stop_requested()) {
    try {
      look();
    } catch (const std::exception& error) {
      error_ = std::current_exception();
      lock.unlock();
      tell(error);
      comm_->abort();
      return;
    }
    wake_.wait_for(lock, stop, kLookEvery, [] { return false; });
  }
}

// Throws when the oldest open operation has failed or exceeded the deadline.
void NcclGroup::look() {
  while (!ops_.empty() && ops_.oldest().has_ended()) {
    parts_.recorder->done(ops_.oldest().flight);
    ops_.drop_oldest();
  }
  if (ops_.empty()) {
    if (parts_.watch->poll()) comm_->abort();  // the next call throws the reason
    return;
  }
  DeviceOp& op = ops_.oldest();
  OpWait wait = patience(op.record);
  wait.check_failure();
  if (const std::optional<std::string> trouble = comm_->trouble()) {
    wait.fail_transport(fmt::format("[comm] NCCL failed on rank {}: {}", layout().world_rank(), *trouble));
  }
  const auto now = DeviceOp::Clock::now();
  if (!op.started && op.has_begun()) {
    op.started = now;
    parts_.recorder->start(op.flight);
  }
  if (!op.started || !op.closed || now - *op.started < parts_.deadline) return;
  const bool message = op.record.kind == OpKind::send || op.record.kind == OpKind::recv;
  wait.fail_all(fmt::format("[comm] nothing moved for {} ms: {}", parts_.deadline.count(),
                            message
                                ? describe_stall(op.record)
                                : "all ranks have issued the operation, but a device has not come to it"));
}

std::byte* NcclGroup::staging() {
  if (staging_.data == nullptr) {
    staging_ = memory_->allocate(device_, 2 * half_bytes_);
    comm_->use(staging_.data);
  }
  return staging_.data;
}

namespace {

class NcclCommunicator final : public CheckedCommunicator {
 public:
  NcclCommunicator(GroupParts parts, Device device, const Exchange& exchange,
                   std::shared_ptr<NcclMemory> memory)
      : CheckedCommunicator(device, parts.layout.rank, parts.layout.size),
        group_(std::move(parts), device, exchange, std::move(memory)) {}

  Traffic traffic() const override { return group_.traffic(); }
  void poll() override { group_.poll(); }

 private:
  void queue(StreamRef stream, Op op) override { group_.run(stream, std::move(op)); }

  NcclGroup group_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(GroupParts parts, Device device,
                                                     const Exchange& exchange,
                                                     std::shared_ptr<NcclMemory> memory) {
  return std::make_unique<NcclCommunicator>(std::move(parts), device, exchange, std::move(memory));
}

}  // namespace zeno::comm
