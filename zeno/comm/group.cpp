#include "zeno/comm/group.h"

#include <algorithm>

#include "zeno/base/error.h"

namespace zeno::comm {

void Turnstile::await(uint64_t ticket, OpWait& wait) {
  bell_.wait_until([&] { return passed_.load() == ticket; }, wait, 0);
}

void Turnstile::pass() {
  passed_.fetch_add(1);
  bell_.ring();
}

Group::Group(GroupParts parts)
    : Rendezvous(std::move(parts)), sends_(size_t(layout().size)), recvs_(size_t(layout().size)) {
  if (!layout().remote.empty()) bounce_.reset(new std::byte[parts_.staging_bytes]);
}

Turnstile& Group::turnstile_of(const OpRecord& record) {
  if (record.kind == OpKind::send) return sends_[size_t(record.root)];
  if (record.kind == OpKind::recv) return recvs_[size_t(record.root)];
  return collectives_;
}

bool Group::sums_over_network() const {
  return parts_.reduction == Reduction::native && !layout().remote.empty();
}

void Group::issue(Op& op) {
  const bool sums = op.record.kind == OpKind::reduce_scatter || op.record.kind == OpKind::all_reduce;
  require(
      !sums || !sums_over_network() || op.record.dtype == DType::f32, ErrorKind::usage,
      "[comm] {} on '{}', a native sum: got {}, expected fp32, as MPI has no floats of 16 bits; send fp32, "
      "or sum in the tree",
      title(op.record), parts_.name, zeno::name_of(op.record.dtype));
  enlist(op, turnstile_of(op.record).take() + 1);
}

void Group::run(const Op& op, Workers& workers) {
  OpWait wait = patience(op.record);
  Turnstile& turnstile = turnstile_of(op.record);
  turnstile.await(op.record.sequence - 1, wait);
  parts_.recorder->start(op.flight);
  bool exposed = false;
  try {
    wait.check_failure();
    if (op.record.kind == OpKind::send) {
      run_send(op, wait);
    } else if (op.record.kind == OpKind::recv) {
      run_recv(op, wait);
    } else {
      exposed = true;
      run_collective(op, workers, wait);
    }
  } catch (const std::exception& error) {
    tell(error);
    // No peer may be reading this rank's memory when the caller gets the error and frees it.
    if (exposed) board_.leave(parts_.memory->patience());
    turnstile.pass();
    throw;
  }
  parts_.recorder->done(op.flight);
  count_traffic(op);
  turnstile.pass();
}

void Group::run_collective(const Op& op, Workers& workers, OpWait& wait) {
  size_t begin = 0;
  do {
    const size_t size = std::min(op.parts.size() - begin, size_t(Board::kMostParts));
    const std::span parts = std::span(op.parts).subspan(begin, size);
    const std::span<const ExchangeSlices> exchanges = exchanges_of(op, begin, size);
    agree(op, parts, exchanges, wait);
    if (op.record.kind != OpKind::barrier) {
      board_.enter(wait);
      DataMover(*this, op, parts, exchanges, workers, wait).run();
      board_.exit();
    }
    board_.part(wait);
    begin += size;
  } while (begin < op.parts.size());
  board_.set_done(op.record);
}

}  // namespace zeno::comm
