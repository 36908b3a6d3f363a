// Runs the instructions that communicate.
#include <utility>

#include "zeno/kernels/elementwise.h"
#include "zeno/kernels/wire_cells.h"
#include "zeno/zero/executor.h"

namespace zeno::zero {

// Encodes into the places of this rank's parts among the cells of all ranks.
void Executor::run(const Encode& op, const Turn& turn) {
  const Group& group = parts_.units.groups[size_t(op.group)];
  const DType compute = parts_.policy.compute;
  std::byte* const kept = op.from != kNoRegion ? region(op.from) : parts_.store.data(State::param, op.group);
  for (const Partition::Chunk& chunk : group.partition.chunks()) {
    const Partition::Piece part = group.partition.part(chunk, rank_, group.params);
    const Tensor values{kept + size_t(part.shard) * size_of(compute), compute, 1, part.count};
    wire_encode(turn.stream, WireCode::int8, values, region(op.to) + wire_bytes(WireCode::int8, part.full));
  }
}

void Executor::run(const Gather& op, const Turn& turn) {
  const ChunkRange& range = op.chunks;
  const Group& group = parts_.units.groups[size_t(range.group)];
  const auto bytes = [&](int64_t elements) {
    const DType compute = parts_.policy.compute;
    return range.region != kNoRegion ? group.gathered_bytes(elements, compute)
                                     : group.stored_bytes(elements, compute);
  };
  const auto at = [&](RegionId id) {
    return id != kNoRegion ? region(id) : parts_.store.data(State::param, range.group);
  };
  // Storage has this rank's part of every chunk, one after the other; a region has whole chunks.
  const bool in_shard = range.region == kNoRegion && !group.params.empty();
  std::vector<comm::Part> parts;
  for (int c = range.first; c < range.first + range.count; ++c) {
    const Partition::Chunk& chunk = group.partition.chunks()[size_t(c)];
    const Partition::Piece sent = group.partition.part(chunk, rank_, op.sharded);
    const Partition::Piece all = group.partition.part(chunk, rank_, op.sharded - op.over);
    std::byte* recv = at(range.region) + bytes(in_shard ? all.shard : all.full);
    const std::byte* send =
        op.in_place ? recv + bytes(sent.full - all.full) : at(op.from) + bytes(sent.shard);
    parts.push_back({send, recv, int64_t(bytes(sent.count))});
  }
  communicator(op).all_gather(turn.stream, parts, DType::u8, parts_.units.unit_names[size_t(turn.in.unit)]);
}

// Where a piece of a chunk is: in the full gradients, in the chunks' region or the storage, or in this rank's
// part of them.
std::byte* Executor::grads_at(const ChunkRange& range, const Partition::Chunk& chunk,
                              const Partition::Piece& piece, bool whole) const {
  const Group& group = parts_.units.groups[size_t(range.group)];
  const size_t width = size_of(parts_.policy.grad);
  if (whole || group.grads.empty())
    return whole_grads({range.group, range.region}) + size_t(piece.full) * width;
  const Partition::Piece kept = group.partition.part(chunk, rank_, group.grads);
  return parts_.store.data(State::grad, range.group) + size_t(kept.shard + piece.full - kept.full) * width;
}

void Executor::run(const Reduce& op, const Turn& turn) {
  if (op.code) return run_coded(op, turn);
  const DType grad = parts_.policy.grad, wire = op.wire != kNoRegion ? parts_.policy.wire : grad;
  const DType sent = op.from != kNoRegion ? DType::f32 : wire;
  const DType summed = op.to != kNoRegion ? DType::f32 : grad;
  std::byte* staged = op.from != kNoRegion   ? region(op.from)
                      : op.wire != kNoRegion ? region(op.wire)
                                             : nullptr;
  std::byte* sums = op.to != kNoRegion ? region(op.to) : nullptr;
  std::vector<comm::Part> fresh, added;         // first sum into a shard, later ones
  std::vector<std::pair<Tensor, Tensor>> back;  // wire → gradients, after an all-reduce
  for (const auto& [range, accumulate] : op.bucket) {
    const Partition& partition = parts_.units.groups[size_t(range.group)].partition;
    for (int c = range.first; c < range.first + range.count; ++c) {
      const Partition::Chunk& chunk = partition.chunks()[size_t(c)];
      const Partition::Piece mine = partition.part(chunk, rank_, op.sharded);
      std::byte* send = staged;
      if (staged != nullptr) staged += size_t(mine.count) * size_of(sent);
      if (op.from == kNoRegion) {
        const Tensor values{grads_at(range, chunk, mine, op.sharded.empty()), grad, 1, mine.count};
        if (send == nullptr) {
          send = values.data;
        } else {
          const Tensor coded{send, wire, 1, mine.count};
          cast(turn.stream, values, coded);
          if (!op.scatter) back.emplace_back(coded, values);
        }
      }
      if (!op.scatter) {
        fresh.push_back({send, send, mine.count});
        continue;
      }
      const Partition::Piece part = partition.part(chunk, rank_, op.sharded | op.over);
      std::byte* recv = sums != nullptr ? sums : grads_at(range, chunk, part, false);
      if (sums != nullptr) sums += size_t(part.count) * size_of(summed);
      (accumulate ? added : fresh).push_back({send, recv, part.count});
    }
  }
  comm::Communicator& comm = communicator(op);
  const std::string& unit = parts_.units.unit_names[size_t(turn.in.unit)];
  if (!op.scatter) comm.all_reduce(turn.stream, fresh, sent, unit);
  if (op.scatter && !fresh.empty()) comm.reduce_scatter(turn.stream, fresh, sent, summed, false, unit);
  if (op.scatter && !added.empty()) comm.reduce_scatter(turn.stream, added, sent, summed, true, unit);
  for (const auto& [coded, target] : back) cast(turn.stream, coded, target);
}

// Ranks exchange slices as cells, and each sums those that it received.
void Executor::run_coded(const Reduce& op, const Turn& turn) {
  const DType grad = parts_.policy.grad;
  std::byte *coded = region(op.wire), *arrived = region(op.arrived);
  const std::byte* from = op.from != kNoRegion ? region(op.from) : nullptr;
  std::byte* to = op.to != kNoRegion ? region(op.to) : nullptr;
  std::vector<comm::Part> parts;
  std::vector<WireSum> sums;
  for (const auto& [range, accumulate] : op.bucket) {
    const Partition& partition = parts_.units.groups[size_t(range.group)].partition;
    for (int c = range.first; c < range.first + range.count; ++c) {
      const Partition::Chunk& chunk = partition.chunks()[size_t(c)];
      const Partition::Piece mine = partition.part(chunk, rank_, op.sharded),
                             part = partition.part(chunk, rank_, op.sharded | op.over);
      Tensor values{grads_at(range, chunk, mine, op.sharded.empty()), grad, 1, mine.count};
      if (from != nullptr) {
        values = {const_cast<std::byte*>(from), DType::f32, 1, mine.count};
        from += values.bytes();
      }
      Tensor sum{to, DType::f32, 1, part.count};
      if (to == nullptr) sum = {grads_at(range, chunk, part, false), grad, 1, part.count};
      if (to != nullptr) to += sum.bytes();
      wire_encode(turn.stream, *op.code, values, coded);
      parts.push_back({coded, arrived, int64_t(wire_bytes(*op.code, part.count))});
      sums.push_back({*op.code, arrived, parts_.mesh.size(op.over), sum, accumulate});
      coded += wire_bytes(*op.code, mine.count);
      arrived += wire_bytes(*op.code, mine.count);
    }
  }
  communicator(op).all_to_all(turn.stream, parts, DType::u8, parts_.units.unit_names[size_t(turn.in.unit)]);
  for (const WireSum& sum : sums) wire_sum(turn.stream, sum);
}

void Executor::run(const GatherSums& op, const Turn& turn) {
  const DType grad = parts_.policy.grad, wire = op.wire != kNoRegion ? parts_.policy.wire : grad;
  std::byte* staged = op.wire != kNoRegion ? region(op.wire) : nullptr;
  std::vector<comm::Part> parts;
  std::vector<std::pair<Tensor, Tensor>> back;  // wire → gradients
  for (const ChunkRange& range : op.bucket) {
    const Partition& partition = parts_.units.groups[size_t(range.group)].partition;
    for (int c = range.first; c < range.first + range.count; ++c) {
      const Partition::Chunk& chunk = partition.chunks()[size_t(c)];
      const Partition::Piece all = partition.part(chunk, rank_, {}),
                             mine = partition.part(chunk, rank_, op.over);
      const Tensor whole{grads_at(range, chunk, all, true), grad, 1, all.count};
      Tensor sent = whole;
      if (staged != nullptr) {
        sent = {staged, wire, 1, all.count};
        staged += sent.bytes();
        back.emplace_back(sent, whole);
      }
      std::byte* recv = sent.data;
      std::byte* own = recv + size_t(mine.full - all.full) * size_of(wire);
      if (op.wire != kNoRegion)
        cast(turn.stream, {grads_at(range, chunk, mine, true), grad, 1, mine.count},
             {own, wire, 1, mine.count});
      parts.push_back({own, recv, mine.count});
    }
  }
  communicator(op).all_gather(turn.stream, parts, wire, parts_.units.unit_names[size_t(turn.in.unit)]);
  for (const auto& [coded, target] : back) cast(turn.stream, coded, target);
}

void Executor::run(const ReduceRows& op, const Turn& turn) {
  const FlatTensor& flat = parts_.units.groups[size_t(op.group)].layout.tensors().front();
  const Tensor table{whole_grads({op.group}), parts_.policy.grad, flat.rows, flat.cols};
  sparse_rows_.reduce(turn.stream, communicator(op), table, parts_.units.unit_names[size_t(turn.in.unit)]);
}

// Each sequence is a part of the all_to_all, so that what arrives of it is contiguous.
void Executor::run(const Exchange& op, const Turn& turn) {
  const auto [send, recv] =
      parts_.model.layers[size_t(turn.in.unit)]->joint({.shape = parts_.shape,
                                                        .compute = parts_.policy.compute,
                                                        .recompute = op.keep,
                                                        .backward = op.backward,
                                                        .saved = bytes_of(op.saved),
                                                        .workspace = bytes_of(op.workspace),
                                                        .part = op.part});
  const int64_t sequences = parts_.shape.batch, rows = send.rows / sequences;
  std::vector<comm::Part> parts;
  for (int64_t b = 0; b < sequences; ++b) {
    parts.push_back({send.slice(b * rows, rows).data, recv.slice(b * rows, rows).data,
                     rows / parts_.shape.context * send.cols});
  }
  communicator(op).all_to_all(turn.stream, parts, send.dtype, parts_.units.unit_names[size_t(turn.in.unit)]);
}

void Executor::run(const Send& op, const Turn& turn) {
  comm::Communicator& comm = communicator(op);
  const std::string& unit = parts_.units.unit_names[size_t(turn.in.unit)];
  const auto send = [&](const Tensor& t) {
    comm.send(turn.stream, t.data, t.count(), t.dtype, op.hop.to, unit);
  };
  if (op.group < 0) return send(activation(op.from));
  for (const Tensor& piece : owned_grads(op.group, op.from)) send(piece);
}

void Executor::run(const Receive& op, const Turn& turn) {
  comm::Communicator& comm = communicator(op);
  const std::string& unit = parts_.units.unit_names[size_t(turn.in.unit)];
  const auto receive = [&](const Tensor& t) {
    comm.recv(turn.stream, t.data, t.count(), t.dtype, op.hop.from, unit);
  };
  if (op.group < 0) return receive(activation(op.to));
  for (const Tensor& piece : owned_grads(op.group, op.to)) receive(piece);
}

void Executor::run(const Norm& op, const Turn& turn) {
  const StepSums* all = sums();
  const int ranks = parts_.mesh.size(op.over);
  if (ranks > 1) {
    all = sums() + 1;
    const comm::Part part{sums_.data(), sums_.data() + sizeof(StepSums), int64_t(sizeof(StepSums))};
    communicator(op).all_gather(turn.stream, {&part, 1}, DType::u8, "gradient norm");
  }
  combine_async(turn.stream, all, ranks, turn.inputs().loss_scale, turn.inputs().clip, outcome());
}

}  // namespace zeno::zero
