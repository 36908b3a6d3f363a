#include "zeno/comm/cuda/thread_group.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "zeno/base/error.h"
#include "zeno/base/math.h"
#include "zeno/comm/checked_communicator.h"
#include "zeno/comm/cuda/reduce_tree.h"

namespace zeno::comm {
namespace {

constexpr int64_t kLine = 128;  // elements; chunks are aligned to vectors of the sum kernel

// Sets the device before the members that follow make their events.
GroupParts on_device(Device device, GroupParts parts) {
  cuda::check(cudaSetDevice(device.index), "choose the device");
  return parts;
}

// Enables kernels of the current device to read memory of `device`. Returns false if the machine cannot do
// that.
bool can_read(int device) {
  int current = 0, possible = 0;
  cuda::check(cudaGetDevice(&current), "ask for the device");
  if (current == device) return true;
  cuda::check(cudaDeviceCanAccessPeer(&possible, current, device), "ask for access between GPUs");
  if (possible == 0) return false;
  const cudaError_t status = cudaDeviceEnablePeerAccess(device, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();
  } else {
    cuda::check(status, "allow access between GPUs");
  }
  return true;
}

}  // namespace

CudaThreadGroup::CudaThreadGroup(GroupParts parts, Device device, const Exchange& exchange)
    : Rendezvous(on_device(device, std::move(parts))),
      device_(device),
      sends_(size_t(size())),
      recvs_(size_t(size())) {
  meet_peers(exchange);
}

CudaThreadGroup::~CudaThreadGroup() {
  if (staging_.data != nullptr) staging_.release(staging_.data);
}

void CudaThreadGroup::meet_peers(const Exchange& exchange) {
  const auto mine = std::make_shared<Peer>();
  mine->device = device_.index;
  const std::shared_ptr<Peer>* address = &mine;  // the others are in the same process and can read it
  for (const std::string& bytes : exchange({reinterpret_cast<const char*>(&address), sizeof address})) {
    const std::shared_ptr<Peer>* theirs = nullptr;
    std::memcpy(&theirs, bytes.data(), sizeof theirs);
    peers_.push_back(*theirs);
  }
  exchange("copied");  // `mine` must live until all have copied it
  for (const auto& peer : peers_) readable_.push_back(can_read(peer->device));
}

uint64_t CudaThreadGroup::next_number(const OpRecord& record) {
  if (record.kind == OpKind::send) return ++sends_[size_t(record.root)];
  if (record.kind == OpKind::recv) return ++recvs_[size_t(record.root)];
  return ++collectives_;
}

void CudaThreadGroup::run(StreamRef stream, Op op) {
  cuda::check(cudaSetDevice(device_.index), "choose the device");
  const cudaStream_t native = cuda::native(stream);
  enlist(op, next_number(op.record));
  OpWait wait = patience(op.record);
  parts_.recorder->start(op.flight);
  bool exposed = false;
  try {
    wait.check_failure();
    exposed = true;
    if (op.record.kind == OpKind::send) {
      run_send(op, native, wait);
    } else if (op.record.kind == OpKind::recv) {
      run_recv(op, native, wait);
    } else {
      run_collective(op, native, wait);
    }
  } catch (const std::exception& error) {
    tell(error);
    if (exposed) leave(native);
    throw;
  }
  parts_.recorder->done(op.flight);  // queued everywhere; the device follows
  count_traffic(op);
}

void CudaThreadGroup::run_collective(const Op& op, cudaStream_t stream, OpWait& wait) {
  size_t begin = 0;
  do {
    const size_t count = std::min(op.parts.size() - begin, size_t(Board::kMostParts));
    const Round round{op, std::span(op.parts).subspan(begin, count), exchanges_of(op, begin, count), stream};
    signal(&Peer::ready, stream);
    agree(op, round.parts, round.exchanges, wait);
    board_.enter(wait);
    await(&Peer::ready, stream);
    if (op.record.kind != OpKind::barrier) move(round, wait);
    signal(&Peer::done, stream);
    board_.exit();
    board_.part(wait);
    await(&Peer::done, stream);
    begin += count;
  } while (begin < op.parts.size());
  board_.set_done(op.record);
}

// When the caller gets the error and frees its memory, peers may still be reading that, and this rank theirs.
// So first this stream becomes idle, then all hosts leave, then the devices.
void CudaThreadGroup::leave(cudaStream_t stream) noexcept {
  if (size() == 1) return;
  cudaStreamSynchronize(stream);
  board_.leave(parts_.memory->patience());
  for (const auto& peer : peers_) peer->done.synchronize();
}

// The message is the sender's buffer. Both hosts wait for each other, so there is one open message per pair.
void CudaThreadGroup::run_send(const Op& op, cudaStream_t stream, OpWait& wait) {
  Mailbox& box = board_.mailbox(rank(), op.record.root);
  signal(&Peer::ready, stream);
  const uint64_t written = box.written.load();
  Mailbox::Chunk& chunk = box.chunks[written % Mailbox::kChunks];
  chunk.record = op.record;
  std::memcpy(chunk.data, &op.parts[0].send, sizeof op.parts[0].send);
  box.written.store(written + 1);
  box.bell.ring();
  box.bell.wait_until([&] { return box.read.load() > written; }, wait, board_.spins());
  peers_[size_t(op.record.root)]->done.hold(stream);
}

void CudaThreadGroup::run_recv(const Op& op, cudaStream_t stream, OpWait& wait) {
  Mailbox& box = board_.mailbox(op.record.root, rank());
  const uint64_t read = box.read.load();
  box.bell.wait_until([&] { return box.written.load() > read; }, wait, board_.spins());
  const Mailbox::Chunk& chunk = box.chunks[read % Mailbox::kChunks];
  check_message(op, chunk.record, wait);
  const std::byte* from = nullptr;
  std::memcpy(&from, chunk.data, sizeof from);
  board_.enter(wait);
  peers_[size_t(op.record.root)]->ready.hold(stream);
  copy({op, op.parts, {}, stream}, op.parts[0].recv, from, op.parts[0].count);
  signal(&Peer::done, stream);
  board_.exit();
  box.read.store(read + 1);
  box.bell.ring();
}

void CudaThreadGroup::move(const Round& round, OpWait& wait) {
  const auto each_part = [&](void (CudaThreadGroup::*step)(const Round&, const Part&, int)) {
    for (size_t p = 0; p < round.parts.size(); ++p) {
      // In an exchange, this rank may receive without sending.
      if (round.parts[p].count > 0 || !round.exchanges.empty()) (this->*step)(round, round.parts[p], int(p));
    }
  };
  switch (round.op.record.kind) {
    case OpKind::all_gather:
      return each_part(&CudaThreadGroup::gather);
    case OpKind::broadcast:
      return each_part(&CudaThreadGroup::broadcast);
    case OpKind::all_to_all:
      return each_part(&CudaThreadGroup::all_to_all);
    case OpKind::reduce_scatter:
      return each_part(&CudaThreadGroup::sum_slice);
    case OpKind::all_reduce:  // each rank sums one slice for all, then copies the slices of the others
      each_part(&CudaThreadGroup::sum_slice);
      signal(&Peer::summed, round.stream);
      board_.meet(wait);
      await(&Peer::summed, round.stream);
      return each_part(&CudaThreadGroup::collect_slices);
    default:
      fail(ErrorKind::internal, "[comm] {} moves no parts", name_of(round.op.record.kind));
  }
}

Slices CudaThreadGroup::slices_of(const Round& round, const Part& part) const {
  return {size(), part.count, round.op.record.kind == OpKind::all_reduce};
}

const std::byte* CudaThreadGroup::sent_by(int rank, int part) const {
  return parts_.memory->resolve(rank, board_.send_address(rank, part));
}

// The driver finds the path between any two devices: a copy engine, or through the host.
void CudaThreadGroup::copy(const Round& round, std::byte* to, const std::byte* from, int64_t elements) const {
  if (to == from || elements == 0) return;
  const size_t bytes = size_t(elements) * size_of(round.op.record.dtype);
  cuda::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, round.stream), "copy between ranks");
}

void CudaThreadGroup::signal(CudaEvent Peer::*event, cudaStream_t stream) {
  if (size() > 1) (peers_[size_t(rank())].get()->*event).record(stream);
}

void CudaThreadGroup::await(CudaEvent Peer::*event, cudaStream_t stream) const {
  for (int d = 1; d < size(); ++d) (peers_[size_t(other(d))].get()->*event).hold(stream);
}

void CudaThreadGroup::gather(const Round& round, const Part& part, int p) {
  const int64_t bytes = part.count * int64_t(size_of(round.op.record.dtype));
  copy(round, part.recv + rank() * bytes, part.send, part.count);
  for (int d = 1; d < size(); ++d) {
    copy(round, part.recv + other(d) * bytes, sent_by(other(d), p), part.count);
  }
}

void CudaThreadGroup::broadcast(const Round& round, const Part& part, int p) {
  const int root = round.op.record.root;
  copy(round, part.recv, root == rank() ? part.send : sent_by(root, p), part.count);
}

void CudaThreadGroup::all_to_all(const Round& round, const Part& part, int p) {
  const int64_t width = int64_t(size_of(round.op.record.dtype));
  const RankSlices& received = round.exchanges[size_t(p)].received;
  for (int d = 0; d < size(); ++d) {
    const int from = other(d);
    if (received.size(from) == 0) continue;
    const std::byte* const sent = from == rank() ? part.send : sent_by(from, p);
    const int64_t begin = board_.mailbox(from, rank()).notes[p].begin;
    copy(round, part.recv + received.begin(from) * width, sent + begin * width, received.size(from));
  }
}

// Reads the peers in place where the device can, and in chunks through staging where it cannot.
void CudaThreadGroup::sum_slice(const Round& round, const Part& part, int p) {
  const Op& op = round.op;
  const Slices slices = slices_of(round, part);
  const int64_t width = int64_t(size_of(op.record.dtype)), begin = slices.begin(rank());
  const int64_t total = slices.size(rank()), out_width = int64_t(size_of(op.recv_dtype));
  std::byte* const out = part.recv + (op.record.kind == OpKind::all_reduce ? begin * out_width : 0);
  const std::byte* const own = part.send + begin * width;
  if (size() == 1 && out == own) return;  // in place: the sum is there already
  const int64_t staged = std::count(readable_.begin(), readable_.end(), false);
  const int64_t room = staged == 0 ? 0 : int64_t(parts_.device_staging_bytes) / (staged * width);
  const int64_t step = staged == 0 ? std::max<int64_t>(1, total) : std::max(kLine, room / kLine * kLine);
  if (staged > 0) staging_free_.hold(round.stream);
  std::vector<const std::byte*> inputs(static_cast<size_t>(size()));
  for (int64_t a = 0; a < total; a += step) {
    const int64_t length = std::min(step, total - a);
    int64_t slot = 0;
    for (int r = 0; r < size(); ++r) {
      const std::byte* from = (r == rank() ? own : sent_by(r, p) + begin * width) + a * width;
      if (!readable_[size_t(r)]) {
        std::byte* const copied = staging() + slot++ * step * width;
        copy(round, copied, from, length);
        from = copied;
      }
      inputs[size_t(r)] = from;
    }
    cuda_tree_sum(round.stream, {out + a * out_width, op.recv_dtype, op.record.dtype, op.accumulate, false},
                  inputs, length);
  }
  if (staged > 0) staging_free_.record(round.stream);
}

void CudaThreadGroup::collect_slices(const Round& round, const Part& part, int p) {
  const Slices slices = slices_of(round, part);
  const int64_t width = int64_t(size_of(round.op.record.dtype));
  for (int d = 1; d < size(); ++d) {
    const int from = other(d);
    const int64_t at = slices.begin(from) * width;
    copy(round, part.recv + at, parts_.memory->resolve(from, board_.recv_address(from, p)) + at,
         slices.size(from));
  }
}

// Allocated at the first sum that needs it, with room for at least a line of each rank.
std::byte* CudaThreadGroup::staging() {
  if (staging_.data == nullptr) {
    const size_t least = size_t(size()) * size_t(kLine) * sizeof(float);
    staging_ = allocator_of(device_)(std::max(parts_.device_staging_bytes, least));
  }
  return staging_.data;
}

namespace {

class CudaThreadCommunicator final : public CheckedCommunicator {
 public:
  CudaThreadCommunicator(GroupParts parts, Device device, const Exchange& exchange)
      : CheckedCommunicator(device, parts.layout.rank, parts.layout.size),
        group_(std::move(parts), device, exchange) {}

  Traffic traffic() const override { return group_.traffic(); }

 private:
  void queue(StreamRef stream, Op op) override { group_.run(stream, std::move(op)); }

  CudaThreadGroup group_;
};

}  // namespace

std::unique_ptr<Communicator> make_cuda_thread_communicator(GroupParts parts, Device device,
                                                            const Exchange& exchange) {
  return std::make_unique<CudaThreadCommunicator>(std::move(parts), device, exchange);
}

}  // namespace zeno::comm
