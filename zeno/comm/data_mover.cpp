#include <algorithm>
#include <utility>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/base/math.h"
#include "zeno/comm/cost.h"
#include "zeno/comm/group.h"
#include "zeno/comm/reduce_tree.h"

namespace zeno::comm {
namespace {

// Results larger than this bypass the caches. Measured: for smaller ones streaming costs more than it saves.
constexpr int64_t kStreamingBytes = 4 << 20;
constexpr int64_t kCopyGrain = 1 << 20;  // bytes
constexpr int64_t kSumGrain = 1 << 18;   // elements
constexpr int64_t kChunkUnit = 32;       // elements; chunks are whole cache lines

}  // namespace

DataMover::DataMover(Group& group, const Op& op, std::span<const Part> parts,
                     std::span<const ExchangeSlices> exchanges, Workers& workers, OpWait& wait)
    : group_(group),
      op_(op),
      parts_(parts),
      exchanges_(exchanges),
      workers_(workers),
      wait_(wait),
      layout_(group.layout()),
      width_(int64_t(size_of(op.record.dtype))) {
  for (int l = 0; l < group_.board_.ranks(); ++l) {
    for (int p = 0; p < int(parts_.size()); ++p) {
      staged_ |= !group_.board_.send_address(l, p).shared || !group_.board_.recv_address(l, p).shared;
    }
  }
  chunked_ = staged_ || !layout_.remote.empty();
}

void DataMover::run() {
  for (int p = 0; p < int(parts_.size()); ++p) {
    // In an exchange, this rank may have nothing to move where others do.
    if (parts_[size_t(p)].count == 0 && exchanges_.empty()) continue;
    switch (op_.record.kind) {
      case OpKind::all_gather:
        gather(p);
        break;
      case OpKind::reduce_scatter:
        group_.sums_over_network() ? sum_over_network(p) : reduce_scatter(p);
        break;
      case OpKind::all_reduce:
        group_.sums_over_network() ? sum_over_network(p) : all_reduce(p);
        break;
      case OpKind::all_to_all:
        all_to_all(p);
        break;
      case OpKind::broadcast:
        broadcast(p);
        break;
      default:
        fail(ErrorKind::internal, "[comm] {} moves no parts", name_of(op_.record.kind));
    }
  }
}

Slices DataMover::slices_of(int part) const {
  return {layout_.size, parts_[size_t(part)].count, op_.record.kind == OpKind::all_reduce};
}

int64_t DataMover::chunk(int slices) const {
  const int64_t elements = int64_t(group_.parts_.staging_bytes) / (slices * width_);
  return std::max(elements / kChunkUnit * kChunkUnit, kChunkUnit);
}

template <class Body>
void DataMover::for_chunks(int64_t count, int slices, const Body& body) const {
  const int64_t step = chunked_ ? chunk(slices) : count;
  for (int64_t a = 0; a < count; a += step) body(a, std::min(count, a + step));
}

void DataMover::copy(std::byte* to, const std::byte* from, int64_t elements, bool streaming) {
  if (to == from) return;
  workers_.for_ranges(elements * width_, kCopyGrain, [&](int64_t begin, int64_t end, int) {
    bulk_copy(to + begin, from + begin, size_t(end - begin), streaming);
  });
}

void DataMover::stage(const std::byte* from, int64_t elements, int64_t staged_at, int area) {
  copy(group_.board_.staging(group_.board_.me(), area) + staged_at * width_, from, elements, false);
}

void DataMover::stage_slices(int part, const Slices& slices, int64_t a, int64_t b) {
  if (group_.board_.send_address(group_.board_.me(), part).shared) return;
  const int64_t step = chunk(layout_.size);
  for (int l = 0; l < group_.board_.ranks(); ++l) {
    const int to = layout_.local[size_t(l)];
    const int64_t end = std::min(b, slices.size(to));
    if (mine(l) || end <= a) continue;
    stage(parts_[size_t(part)].send + (slices.begin(to) + a) * width_, end - a, l * step, 0);
  }
}

void DataMover::meet_if_staged() {
  if (staged_) group_.board_.meet(wait_);
}

const std::byte* DataMover::source(int l, int part, int64_t element, int64_t staged_at) const {
  const Address& address = group_.board_.send_address(l, part);
  if (!address.shared) return group_.board_.staging(l, 0) + staged_at * width_;
  return group_.parts_.memory->resolve(l, address) + element * width_;
}

void DataMover::gather(int part) {
  const Part& mine_part = parts_[size_t(part)];
  const int64_t count = mine_part.count;
  const bool streaming = count * layout_.size * width_ >= kStreamingBytes;
  for_chunks(count, 1, [&](int64_t a, int64_t b) {
    const int64_t size = b - a;
    if (!group_.board_.send_address(group_.board_.me(), part).shared) {
      stage(mine_part.send + a * width_, size, 0, 0);
    }
    meet_if_staged();
    if (!layout_.remote.empty()) {
      const auto batch = group_.parts_.link->batch(Channel::data);
      for (const int q : layout_.remote) {
        batch->receive(q, mine_part.recv + (q * count + a) * width_, size_t(size * width_));
      }
      for (const int q : layout_.remote) batch->send(q, mine_part.send + a * width_, size_t(size * width_));
      group_.finish(*batch, wait_);
    }
    for (int d = 0; d < group_.board_.ranks(); ++d) {
      const int l = peer(d), q = layout_.local[size_t(l)];
      const std::byte* from = mine(l) ? mine_part.send + a * width_ : source(l, part, a, 0);
      copy(mine_part.recv + (q * count + a) * width_, from, size, streaming);
    }
    meet_if_staged();
  });
}

void DataMover::broadcast(int part) {
  const Part& mine_part = parts_[size_t(part)];
  const int root = op_.record.root;
  const auto found = std::find(layout_.local.begin(), layout_.local.end(), root);
  const int root_local = found == layout_.local.end() ? -1 : int(found - layout_.local.begin());
  const bool streaming = mine_part.count * width_ >= kStreamingBytes;
  for_chunks(mine_part.count, 1, [&](int64_t a, int64_t b) {
    const int64_t size = b - a, bytes = size * width_;
    const bool is_root = root == layout_.rank;
    if (is_root && staged_) stage(mine_part.send + a * width_, size, 0, 0);
    meet_if_staged();
    if (!layout_.remote.empty() && (is_root || root_local < 0)) {
      const auto batch = group_.parts_.link->batch(Channel::data);
      if (is_root) {
        for (const int q : layout_.remote) batch->send(q, mine_part.send + a * width_, size_t(bytes));
      } else {
        batch->receive(root, mine_part.recv + a * width_, size_t(bytes));
      }
      group_.finish(*batch, wait_);
    }
    if (is_root) {
      copy(mine_part.recv + a * width_, mine_part.send + a * width_, size, streaming);
    } else if (root_local >= 0) {
      copy(mine_part.recv + a * width_, source(root_local, part, a, 0), size, streaming);
    }
    meet_if_staged();
  });
}

// Exchanges chunks of slices with ranks of other hosts; what arrives goes to the bounce buffer.
void DataMover::trade_with_remote(int part, const Slices& slices, int64_t a, int64_t b) {
  if (layout_.remote.empty()) return;
  const Part& mine_part = parts_[size_t(part)];
  const int64_t step = chunk(layout_.size);
  const auto batch = group_.parts_.link->batch(Channel::data);
  const int64_t my_end = std::min(b, slices.size(layout_.rank));
  for (size_t i = 0; i < layout_.remote.size() && my_end > a; ++i) {
    std::byte* to = group_.bounce_.get() + int64_t(i) * step * width_;
    batch->receive(layout_.remote[i], to, size_t((my_end - a) * width_));
  }
  for (const int q : layout_.remote) {
    const int64_t end = std::min(b, slices.size(q));
    if (end > a) batch->send(q, mine_part.send + (slices.begin(q) + a) * width_, size_t((end - a) * width_));
  }
  group_.finish(*batch, wait_);
}

void DataMover::sum_slice(int part, const Slices& slices, int64_t a, int64_t b, bool streaming) {
  const int64_t end = std::min(b, slices.size(layout_.rank));
  if (end <= a) return;
  const Part& mine_part = parts_[size_t(part)];
  const int64_t step = chunk(layout_.size), at = slices.begin(layout_.rank) + a;
  std::vector<const std::byte*> inputs(size_t(layout_.size));
  for (int l = 0; l < group_.board_.ranks(); ++l) {
    inputs[size_t(layout_.local[size_t(l)])] =
        mine(l) ? mine_part.send + at * width_ : source(l, part, at, group_.board_.me() * step);
  }
  for (size_t i = 0; i < layout_.remote.size(); ++i) {
    inputs[size_t(layout_.remote[i])] = group_.bounce_.get() + int64_t(i) * step * width_;
  }
  const bool reduce_only = op_.record.kind == OpKind::reduce_scatter;
  const DType out_dtype = reduce_only ? op_.recv_dtype : op_.record.dtype;
  const int64_t out_width = int64_t(size_of(out_dtype));
  add(inputs, mine_part.recv + (reduce_only ? a : at) * out_width, out_dtype, end - a, streaming);
}

void DataMover::add(std::span<const std::byte* const> inputs, std::byte* out, DType out_dtype,
                    int64_t elements, bool streaming) {
  workers_.for_ranges(elements, kSumGrain, [&](int64_t from, int64_t to, int) {
    std::vector<const std::byte*> moved(inputs.begin(), inputs.end());
    for (const std::byte*& input : moved) input += from * width_;
    tree_sum(
        {out + from * int64_t(size_of(out_dtype)), out_dtype, op_.record.dtype, op_.accumulate, streaming},
        moved, to - from);
  });
}

void DataMover::reduce_scatter(int part) {
  const Slices slices = slices_of(part);
  const int64_t count = slices.count;
  const bool streaming = count * int64_t(size_of(op_.recv_dtype)) >= kStreamingBytes;
  for_chunks(count, layout_.size, [&](int64_t a, int64_t b) {
    stage_slices(part, slices, a, b);
    meet_if_staged();
    trade_with_remote(part, slices, a, b);
    sum_slice(part, slices, a, b, streaming);
    meet_if_staged();
  });
}

// Chunks go one at a time through the bounce buffer, where MPI sums in place, so that MPI never holds memory
// of the caller when a sum has to be abandoned. Counted as sent are the bytes that the tree would send.
void DataMover::sum_over_network(int part) {
  const Part& mine_part = parts_[size_t(part)];
  const bool scatter = op_.record.kind == OpKind::reduce_scatter;
  const DType out_dtype = scatter ? op_.recv_dtype : op_.record.dtype;
  const int64_t out_width = int64_t(size_of(out_dtype));
  const bool streaming = mine_part.count * out_width >= kStreamingBytes;
  const Slices shares = slices_of(part);
  int64_t counted = 0;
  for (const int q : layout_.remote) {
    counted += (shares.size(q) + (scatter ? 0 : shares.size(layout_.rank))) * width_;
  }
  const int slices = scatter ? layout_.size : 1;
  std::byte* const bounce = group_.bounce_.get();
  for_chunks(mine_part.count, slices, [&](int64_t a, int64_t b) {
    const int64_t size = b - a;
    for (int q = 0; q < slices; ++q) {
      copy(bounce + q * size * width_, mine_part.send + (q * mine_part.count + a) * width_, size, false);
    }
    const auto sum =
        group_.parts_.link->sum({group_.bounce_, slices * size, scatter, std::exchange(counted, 0)});
    group_.finish(*sum, wait_);
    const std::byte* const summed = bounce;
    add({&summed, 1}, mine_part.recv + a * out_width, out_dtype, size, streaming);
  });
}

// Exchanges chunks of slices with ranks of other hosts, directly into recv. Both ranks of a pair cut their
// slice the same way; a rank with shorter slices is done before the others.
void DataMover::exchange_with_remote(int part) {
  const Part& mine_part = parts_[size_t(part)];
  const ExchangeSlices& slices = exchanges_[size_t(part)];
  int64_t longest = 0;
  for (const int q : layout_.remote) {
    longest = std::max({longest, slices.sent.size(q), slices.received.size(q)});
  }
  for_chunks(longest, layout_.size, [&](int64_t a, int64_t b) {
    const auto batch = group_.parts_.link->batch(Channel::data);
    for (const int q : layout_.remote) {
      const int64_t end = std::min(b, slices.received.size(q));
      std::byte* to = mine_part.recv + (slices.received.begin(q) + a) * width_;
      if (end > a) batch->receive(q, to, size_t((end - a) * width_));
    }
    for (const int q : layout_.remote) {
      const int64_t end = std::min(b, slices.sent.size(q));
      const std::byte* from = mine_part.send + (slices.sent.begin(q) + a) * width_;
      if (end > a) batch->send(q, from, size_t((end - a) * width_));
    }
    group_.finish(*batch, wait_);
  });
}

int64_t DataMover::longest_local_slice(int part) const {
  int64_t longest = 0;
  for (int from = 0; from < group_.board_.ranks(); ++from) {
    for (int to = 0; to < group_.board_.ranks(); ++to) {
      longest = std::max(longest, group_.board_.mailbox(from, to).notes[part].count);
    }
  }
  return longest;
}

void DataMover::stage_exchange(int part, int64_t a, int64_t b) {
  if (group_.board_.send_address(group_.board_.me(), part).shared) return;
  const RankSlices& sent = exchanges_[size_t(part)].sent;
  for (int l = 0; l < group_.board_.ranks(); ++l) {
    const int to = layout_.local[size_t(l)];
    const int64_t end = std::min(b, sent.size(to));
    if (mine(l) || end <= a) continue;
    stage(parts_[size_t(part)].send + (sent.begin(to) + a) * width_, end - a, l * chunk(layout_.size), 0);
  }
}

// Each rank fetches its slice from the others of its host.
void DataMover::all_to_all(int part) {
  const Part& mine_part = parts_[size_t(part)];
  const ExchangeSlices& slices = exchanges_[size_t(part)];
  const bool streaming = slices.received.total() * width_ >= kStreamingBytes;
  const int me = group_.board_.me();
  if (!layout_.remote.empty()) exchange_with_remote(part);
  for_chunks(longest_local_slice(part), layout_.size, [&](int64_t a, int64_t b) {
    stage_exchange(part, a, b);
    meet_if_staged();
    for (int d = 0; d < group_.board_.ranks(); ++d) {
      const int l = peer(d), q = layout_.local[size_t(l)];
      const int64_t end = std::min(b, slices.received.size(q));
      if (end <= a) continue;
      const int64_t at = group_.board_.mailbox(l, me).notes[part].begin + a;
      const std::byte* from =
          mine(l) ? mine_part.send + at * width_ : source(l, part, at, me * chunk(layout_.size));
      copy(mine_part.recv + (slices.received.begin(q) + a) * width_, from, end - a, streaming);
    }
    meet_if_staged();
  });
}

// Each rank sums one slice for all, then copies the slices of the others.
void DataMover::all_reduce(int part) {
  const Slices slices = slices_of(part);
  const bool streaming = slices.size(0) * width_ >= kStreamingBytes;
  for_chunks(slices.size(0), layout_.size, [&](int64_t a, int64_t b) {
    stage_slices(part, slices, a, b);
    meet_if_staged();
    trade_with_remote(part, slices, a, b);
    sum_slice(part, slices, a, b, streaming);
    spread_results(part, slices, a, b);
    if (!staged_) return;
    group_.board_.meet(wait_);
    collect_results(part, slices, a, b, streaming);
    group_.board_.meet(wait_);
  });
  if (staged_) return;
  group_.board_.meet(wait_);
  collect_results(part, slices, 0, slices.size(0), streaming);
}

// Makes this rank's finished slice visible: by message to other hosts, by staging where recv is not shared.
void DataMover::spread_results(int part, const Slices& slices, int64_t a, int64_t b) {
  const Part& mine_part = parts_[size_t(part)];
  const auto length = [&](int rank) { return std::max<int64_t>(0, std::min(b, slices.size(rank)) - a); };
  const auto result = [&](int rank) { return mine_part.recv + (slices.begin(rank) + a) * width_; };
  if (!group_.board_.recv_address(group_.board_.me(), part).shared) {
    stage(result(layout_.rank), length(layout_.rank), 0, 1);
  }
  if (layout_.remote.empty()) return;
  const auto batch = group_.parts_.link->batch(Channel::data);
  for (const int q : layout_.remote) {
    if (length(q) > 0) batch->receive(q, result(q), size_t(length(q) * width_));
  }
  for (const int q : layout_.remote) {
    if (length(layout_.rank) > 0) batch->send(q, result(layout_.rank), size_t(length(layout_.rank) * width_));
  }
  group_.finish(*batch, wait_);
}

void DataMover::collect_results(int part, const Slices& slices, int64_t a, int64_t b, bool streaming) {
  for (int d = 1; d < group_.board_.ranks(); ++d) {
    const int l = peer(d), q = layout_.local[size_t(l)];
    const int64_t end = std::min(b, slices.size(q)), at = slices.begin(q) + a;
    if (end <= a) continue;
    const Address& address = group_.board_.recv_address(l, part);
    const std::byte* from = address.shared ? group_.parts_.memory->resolve(l, address) + at * width_
                                           : group_.board_.staging(l, 1);
    copy(parts_[size_t(part)].recv + at * width_, from, end - a, streaming);
  }
}

}  // namespace zeno::comm
