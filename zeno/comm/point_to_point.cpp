#include <algorithm>
#include <cstring>

#include "zeno/comm/group.h"

namespace zeno::comm {
namespace {

size_t bytes_of(const Op& op) { return size_t(op.record.elements) * size_of(op.record.dtype); }

}  // namespace

void Group::run_send(const Op& op, OpWait& wait) {
  const int to = local_index_of(op.record.root);
  if (to < 0) return send_message(op, wait);
  Mailbox& box = board_.mailbox(board_.me(), to);
  const size_t bytes = bytes_of(op);
  size_t at = 0;
  do {
    const uint64_t written = box.written.load();
    box.bell.wait_until([&] { return written - box.read.load() < Mailbox::kChunks; }, wait, board_.spins());
    Mailbox::Chunk& chunk = box.chunks[written % Mailbox::kChunks];
    const size_t size = std::min(bytes - at, Mailbox::kChunkBytes);
    chunk.record = op.record;
    if (size > 0) std::memcpy(chunk.data, op.parts[0].send + at, size);
    box.written.store(written + 1);
    box.bell.ring();
    at += size;
  } while (at < bytes);
}

void Group::run_recv(const Op& op, OpWait& wait) {
  const int from = local_index_of(op.record.root);
  if (from < 0) return receive_message(op, wait);
  Mailbox& box = board_.mailbox(from, board_.me());
  const size_t bytes = bytes_of(op);
  size_t at = 0;
  do {
    const uint64_t read = box.read.load();
    box.bell.wait_until([&] { return box.written.load() > read; }, wait, board_.spins());
    const Mailbox::Chunk& chunk = box.chunks[read % Mailbox::kChunks];
    if (at == 0) check_message(op, chunk.record, wait);
    const size_t size = std::min(bytes - at, Mailbox::kChunkBytes);
    if (size > 0) std::memcpy(op.parts[0].recv + at, chunk.data, size);
    box.read.store(read + 1);
    box.bell.ring();
    at += size;
  } while (at < bytes);
}

void Group::send_message(const Op& op, OpWait& wait) {
  const auto record = parts_.link->batch(Channel::point_to_point);
  record->send(op.record.root, reinterpret_cast<const std::byte*>(&op.record), sizeof op.record);
  complete(*record, wait);
  for (size_t at = 0; at < bytes_of(op); at += parts_.staging_bytes) {
    const auto batch = parts_.link->batch(Channel::point_to_point);
    batch->send(op.record.root, op.parts[0].send + at, std::min(bytes_of(op) - at, parts_.staging_bytes));
    complete(*batch, wait);
  }
}

void Group::receive_message(const Op& op, OpWait& wait) {
  OpRecord theirs;
  const auto record = parts_.link->batch(Channel::point_to_point);
  record->receive(op.record.root, reinterpret_cast<std::byte*>(&theirs), sizeof theirs);
  complete(*record, wait);
  check_message(op, theirs, wait);
  for (size_t at = 0; at < bytes_of(op); at += parts_.staging_bytes) {
    const auto batch = parts_.link->batch(Channel::point_to_point);
    batch->receive(op.record.root, op.parts[0].recv + at, std::min(bytes_of(op) - at, parts_.staging_bytes));
    complete(*batch, wait);
  }
}

}  // namespace zeno::comm
