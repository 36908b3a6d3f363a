#include <algorithm>

#include "zeno/base/error.h"
#include "zeno/base/math.h"
#include "zeno/comm/cuda/nccl_group.h"
#include "zeno/comm/cuda/reduce_tree.h"

namespace zeno::comm {
namespace {

constexpr size_t kLeastSlot = size_t(64) << 10;  // a part is not cut to fill less space than this

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16:
      return ncclFloat16;
    default:
      fail(ErrorKind::internal, "[nccl] a sum of {}, expected a floating type", name_of(dtype));
  }
}

}  // namespace

NcclMover::NcclMover(NcclGroup& group, const Op& op, cudaStream_t stream, OpWait& wait)
    : group_(group),
      op_(op),
      stream_(stream),
      wait_(wait),
      rank_(group.layout().rank),
      size_(group.layout().size),
      width_(int64_t(size_of(op.record.dtype))) {}

void NcclMover::run() {
  switch (op_.record.kind) {
    case OpKind::all_gather:
      return gather();
    case OpKind::broadcast:
      return broadcast();
    case OpKind::all_to_all:
      return all_to_all();
    case OpKind::barrier:
      return barrier();
    case OpKind::reduce_scatter:
    case OpKind::all_reduce:
      return reduce();
    default:
      fail(ErrorKind::internal, "[comm] {} is not a collective", name_of(op_.record.kind));
  }
}

void NcclMover::gather() {
  if (op_.record.elements == 0) return;
  group_.comm_->group(
      [&](ncclComm_t comm) {
        for (const Part& part : op_.parts) {
          if (part.count == 0) continue;
          check_nccl(ncclAllGather(part.send, part.recv, bytes_of(part.count), ncclUint8, comm, stream_),
                     "gather");
        }
      },
      wait_);
}

void NcclMover::broadcast() {
  if (op_.record.elements == 0) return;
  const int root = op_.record.root;
  group_.comm_->group(
      [&](ncclComm_t comm) {
        for (const Part& part : op_.parts) {
          if (part.count == 0) continue;
          const std::byte* from = rank_ == root ? part.send : part.recv;
          check_nccl(ncclBroadcast(from, part.recv, bytes_of(part.count), ncclUint8, root, comm, stream_),
                     "broadcast");
        }
      },
      wait_);
}

void NcclMover::all_to_all() {
  const auto each_part = [&](const auto& body) {
    for (size_t p = 0; p < op_.parts.size(); ++p) {
      body(op_.parts[p], op_.exchanges[p].sent, op_.exchanges[p].received);
    }
  };
  each_part([&](const Part& part, const RankSlices& sent, const RankSlices& received) {
    if (sent.size(rank_) == 0) return;
    cuda::check(
        cudaMemcpyAsync(part.recv + bytes_of(received.begin(rank_)), part.send + bytes_of(sent.begin(rank_)),
                        bytes_of(sent.size(rank_)), cudaMemcpyDefault, stream_),
        "copy a slice");
  });
  group_.comm_->group(
      [&](ncclComm_t comm) {
        each_part([&](const Part& part, const RankSlices& sent, const RankSlices& received) {
          for (int d = 1; d < size_; ++d) {
            const int to = (rank_ + d) % size_, from = (rank_ + size_ - d) % size_;
            const size_t out = bytes_of(sent.size(to)), in = bytes_of(received.size(from));
            const std::byte* const slice = part.send + bytes_of(sent.begin(to));
            std::byte* const place = part.recv + bytes_of(received.begin(from));
            if (out > 0) check_nccl(ncclSend(slice, out, ncclUint8, to, comm, stream_), "send");
            if (in > 0) check_nccl(ncclRecv(place, in, ncclUint8, from, comm, stream_), "receive");
          }
        });
      },
      wait_);
}

void NcclMover::barrier() {
  std::byte* const token = group_.token_.data;
  group_.comm_->group(
      [&](ncclComm_t comm) {
        check_nccl(ncclAllGather(token + rank_, token, 1, ncclUint8, comm, stream_), "meet");
      },
      wait_);
}

// Fills rounds of half the staging memory with slots of slices, part after part. Depends only on the counts,
// so all ranks cut the same way.
std::vector<NcclMover::Piece> NcclMover::plan() const {
  const size_t in_piece = size_t(slots());
  std::vector<Piece> pieces;
  int round = 0;
  size_t used = 0;
  for (const Part& part : op_.parts) {
    const Slices slices{size_, part.count, op_.record.kind == OpKind::all_reduce};
    const int64_t longest = part.count == 0 ? 0 : slices.longest();
    int64_t a = 0;
    while (a < longest) {
      const size_t room = (group_.half_bytes_ - used) / in_piece / kSlotAlign * kSlotAlign;
      const int64_t left = longest - a, fits = int64_t(room) / width_;
      if (used > 0 && fits < left && room < kLeastSlot) {
        ++round;
        used = 0;
        continue;
      }
      const int64_t taken = std::min(left, fits);
      const size_t slot = round_up(bytes_of(taken), kSlotAlign);
      pieces.push_back({&part, slices, a, a + taken, used, slot, round});
      used += slot * in_piece;
      a += taken;
    }
  }
  return pieces;
}

const std::byte* NcclMover::slot(const Piece& piece, const std::byte* half, int rank) const {
  return half + piece.at + size_t(native() || rank < rank_ ? rank : rank - 1) * piece.slot;
}

void NcclMover::reduce_directly() {
  if (op_.record.elements == 0) return;
  const ncclDataType_t type = nccl_type(op_.record.dtype);
  const auto sum = op_.record.kind == OpKind::all_reduce ? ncclAllReduce : ncclReduceScatter;
  group_.comm_->group(
      [&](ncclComm_t comm) {
        for (const Part& part : op_.parts) {
          if (part.count == 0) continue;
          check_nccl(sum(part.send, part.recv, size_t(part.count), type, ncclSum, comm, stream_), "sum");
        }
      },
      wait_);
}

// While one half of staging is summed on the caller's stream, the other is filled on the group's own stream.
// A reduction of one round needs no second stream.
void NcclMover::reduce() {
  const bool as_it_is = !op_.accumulate && op_.recv_dtype == op_.record.dtype;
  if (native() && as_it_is) return reduce_directly();
  const std::vector<Piece> pieces = plan();
  if (pieces.empty()) return;
  const int rounds = pieces.back().round + 1;
  const bool gathers = op_.record.kind == OpKind::all_reduce;
  const cudaStream_t wire = rounds > 1 ? cudaStream_t(group_.wire_) : stream_;
  const auto round = [&](int k) {
    const auto begin =
        std::find_if(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.round == k; });
    const auto end = std::find_if(begin, pieces.end(), [&](const Piece& p) { return p.round != k; });
    return std::span(begin, end);
  };
  const auto pass_on = [](CudaEvent& event, cudaStream_t from, cudaStream_t to) {
    if (from == to) return;
    event.record(from);
    event.hold(to);
  };
  std::byte* const halves = group_.staging();
  pass_on(group_.issued_, stream_, wire);
  if (group_.last_sums_ != stream_) {  // another stream may still be summing from staging
    for (const CudaEvent& summed : group_.summed_) summed.hold(wire);
  }
  group_.last_sums_ = stream_;
  const auto spread_round = [&](int k) {
    if (wire != stream_) group_.summed_[size_t(k % 2)].hold(wire);
    spread(round(k), wire);
  };
  for (int k = 0; k < rounds; ++k) {
    std::byte* const half = halves + size_t(k % 2) * group_.half_bytes_;
    if (k >= 2) group_.summed_[size_t(k % 2)].hold(wire);
    native() ? sum_in_place(round(k), half, wire) : trade(round(k), half, wire);
    pass_on(group_.arrived_, wire, stream_);
    sum(round(k), half);
    group_.summed_[size_t(k % 2)].record(stream_);
    if (gathers && k > 0) spread_round(k - 1);
  }
  if (gathers) spread_round(rounds - 1);
  pass_on(group_.finished_, wire, stream_);
}

// Sends the slices of all ranks to their owners.
void NcclMover::trade(std::span<const Piece> pieces, std::byte* half, cudaStream_t stream) {
  group_.comm_->group(
      [&](ncclComm_t comm) {
        for (const Piece& piece : pieces) {
          const size_t mine = bytes_of(piece.slices.length(rank_, piece.a, piece.b));
          for (int d = 1; d < size_; ++d) {
            const int to = (rank_ + d) % size_, from = (rank_ + size_ - d) % size_;
            const size_t theirs = bytes_of(piece.slices.length(to, piece.a, piece.b));
            const std::byte* const out = piece.part->send + bytes_of(piece.slices.begin(to) + piece.a);
            if (theirs > 0) check_nccl(ncclSend(out, theirs, ncclUint8, to, comm, stream), "send a slice");
            auto* const in = const_cast<std::byte*>(slot(piece, half, from));
            if (mine > 0) check_nccl(ncclRecv(in, mine, ncclUint8, from, comm, stream), "receive a slice");
          }
        }
      },
      wait_);
}

// NCCL sums the slots in place, and this rank's slot becomes the sum. The padding at the end of each slot is
// summed too and never read.
void NcclMover::sum_in_place(std::span<const Piece> pieces, std::byte* half, cudaStream_t stream) {
  for (const Piece& piece : pieces) {
    for (int r = 0; r < size_; ++r) {
      cuda::check(cudaMemcpyAsync(const_cast<std::byte*>(slot(piece, half, r)),
                                  piece.part->send + bytes_of(piece.slices.begin(r) + piece.a),
                                  bytes_of(piece.b - piece.a), cudaMemcpyDefault, stream),
                  "bring slices together");
    }
  }
  group_.comm_->group(
      [&](ncclComm_t comm) {
        for (const Piece& piece : pieces) {
          auto* const mine = const_cast<std::byte*>(slot(piece, half, rank_));
          check_nccl(ncclReduceScatter(half + piece.at, mine, piece.slot / size_t(width_),
                                       nccl_type(op_.record.dtype), ncclSum, comm, stream),
                     "sum slices");
        }
      },
      wait_);
}

// The inputs whose sum is this rank's slice.
std::vector<const std::byte*> NcclMover::summands(const Piece& piece, const std::byte* half) const {
  if (native()) return {slot(piece, half, rank_)};
  std::vector<const std::byte*> inputs(static_cast<size_t>(size_));
  for (int r = 0; r < size_; ++r) {
    inputs[size_t(r)] =
        r == rank_ ? piece.part->send + bytes_of(piece.slices.begin(rank_) + piece.a) : slot(piece, half, r);
  }
  return inputs;
}

void NcclMover::sum(std::span<const Piece> pieces, const std::byte* half) {
  const bool whole = op_.record.kind == OpKind::all_reduce;
  const size_t out_width = size_of(op_.recv_dtype);
  for (const Piece& piece : pieces) {
    const int64_t length = piece.slices.length(rank_, piece.a, piece.b);
    const int64_t at = piece.slices.begin(rank_) + piece.a;
    std::byte* const out = piece.part->recv + size_t(whole ? at : piece.a) * out_width;
    cuda_tree_sum(stream_, {out, op_.recv_dtype, op_.record.dtype, op_.accumulate, false},
                  summands(piece, half), length);
  }
}

// Sends every rank's finished slice to the others.
void NcclMover::spread(std::span<const Piece> pieces, cudaStream_t stream) {
  group_.comm_->group(
      [&](ncclComm_t comm) {
        for (const Piece& piece : pieces) {
          const auto place = [&](int rank) {
            return piece.part->recv + bytes_of(piece.slices.begin(rank) + piece.a);
          };
          const size_t mine = bytes_of(piece.slices.length(rank_, piece.a, piece.b));
          for (int d = 1; d < size_; ++d) {
            const int to = (rank_ + d) % size_, from = (rank_ + size_ - d) % size_;
            const size_t theirs = bytes_of(piece.slices.length(from, piece.a, piece.b));
            if (mine > 0) check_nccl(ncclSend(place(rank_), mine, ncclUint8, to, comm, stream), "send a sum");
            if (theirs > 0) {
              check_nccl(ncclRecv(place(from), theirs, ncclUint8, from, comm, stream), "receive a sum");
            }
          }
        }
      },
      wait_);
}

}  // namespace zeno::comm
