// What each instruction does on its stream.
#include <algorithm>

#include "zeno/base/error.h"
#include "zeno/device/copy.h"
#include "zeno/kernels/elementwise.h"
#include "zeno/kernels/nf4.h"
#include "zeno/zero/executor.h"

namespace zeno::zero {

std::byte* Executor::region(RegionId id) const {
  const Region& r = running_->regions[id];
  return pools_[size_t(r.tier)][size_t(r.purpose)].data() + r.offset;
}

Tensor Executor::bytes_of(RegionId id) const {
  if (id == kNoRegion) return {};
  return {region(id), DType::u8, 1, int64_t(running_->regions[id].bytes)};
}

Tensor Executor::activation(RegionId id) const {
  if (id == kNoRegion) return {};
  return {region(id), parts_.policy.compute, parts_.shape.rows(), parts_.model.hidden};
}

std::byte* Executor::whole_grads(const Binding& binding) const {
  return binding.region != kNoRegion ? region(binding.region) : parts_.store.data(State::grad, binding.group);
}

// Views of a layer's tensors in its own order; empty where the instruction binds nothing (frozen, not
// needed).
std::vector<Tensor> Executor::views(int layer, const std::vector<Binding>& bindings, State state) const {
  std::vector<Tensor> tensors;
  for (int param : parts_.units.layer_params[layer]) {
    const ParamPlace place = parts_.units.places[param];
    const auto bound = std::find_if(bindings.begin(), bindings.end(),
                                    [&](const Binding& binding) { return binding.group == place.group; });
    if (bound == bindings.end()) {
      tensors.emplace_back();
      continue;
    }
    std::byte* base =
        bound->region != kNoRegion ? region(bound->region) : parts_.store.data(state, place.group);
    const FlatTensor& flat = parts_.units.groups[place.group].layout.tensors()[place.tensor];
    const DType dtype = parts_.store.dtype(state);
    tensors.emplace_back(base + size_t(flat.offset) * size_of(dtype), dtype, flat.rows, flat.cols);
  }
  return tensors;
}

// All of an instruction's gradients are fresh, or none (GradientPlan::bind).
bool Executor::writes(const Instruction& in) { return !in.grads.empty() && in.grads.front().fresh; }

comm::Communicator& Executor::communicator(const Instruction& in) {
  return in.op == Op::gather ? *gathers_ : *reduces_;
}

void Executor::dispatch(const Instruction& in, StreamRef stream, const Step& step) {
  const StepInputs& inputs = *step.inputs;
  const UnitTable& units = parts_.units;
  const DType grad = parts_.policy.grad;
  switch (in.op) {
    case Op::start:
      if (!inputs.continues) fill_zero_async(stream, sums_.data(), sizeof(StepSums));
      return;
    case Op::read:
    case Op::write:
      return run_disk(in, stream);
    case Op::fetch:
    case Op::store:
      return in.op == Op::fetch && in.target.region == kNoRegion ? run_publish(in, stream)
                                                                 : run_copy(in, stream);
    case Op::send:
      return run_send(in, stream);
    case Op::gather:
      return run_gather(in, stream);
    case Op::decode: {
      const int g = in.target.group;
      const std::byte* cells =
          in.source != kNoRegion ? region(in.source) : parts_.store.data(State::param, g);
      return nf4_decode(stream, reinterpret_cast<const Nf4Cell*>(cells),
                        {region(in.target.region), parts_.policy.compute, 1, units.groups[g].padded()});
    }
    case Op::zero_grads: {
      const size_t bytes = size_t(units.groups[in.target.group].padded()) * size_of(grad);
      return fill_zero_async(stream, whole_grads(in.target), bytes);
    }
    case Op::forward:
    case Op::recompute:
    case Op::backward:
      return run_layer(in, stream, inputs);
    case Op::loss:
      return run_loss(in, stream, inputs);
    case Op::add_grads: {
      const int64_t count = units.groups[in.target.group].padded();
      const Tensor target{whole_grads(in.target), grad, 1, count};
      return add(stream, target, {region(in.source), grad, 1, count}, target);
    }
    case Op::reduce:
      return run_reduce(in, stream);
    case Op::reduce_rows: {
      const FlatTensor& flat = units.groups[in.target.group].layout.tensors().front();
      const Tensor table{whole_grads(in.target), grad, flat.rows, flat.cols};
      return sparse_rows_.reduce(stream, communicator(in), table, units.unit_names[in.layer]);
    }
    case Op::sum_losses:
      return run_sum_losses(stream, inputs);
    case Op::scan:
      return run_scan(in, stream);
    case Op::norm:
      return run_norm(stream, inputs);
    case Op::update:
      return run_update(in, stream, step);
    case Op::finish:
      return copy_async(stream, reinterpret_cast<std::byte*>(result_slot(step)), outcome_.data(),
                        sizeof(StepOutcome));
  }
}

void Executor::run_layer(const Instruction& in, StreamRef stream, const StepInputs& inputs) {
  const nn::Layer& layer = *parts_.model.layers[in.layer];
  const nn::Batch& batch = inputs.batches[in.micro_batch];
  const std::vector<Tensor> params = views(in.layer, in.params, State::param);
  if (in.op == Op::backward) {
    const std::vector<Tensor> grads = views(in.layer, in.grads, State::grad);
    const Tensor dy = activation(in.y);
    layer.backward({.stream = stream,
                    .batch = batch,
                    .params = params,
                    .grads = grads,
                    .x = activation(in.x),
                    .dy = dy,
                    .dx = in.layer > parts_.units.first_trained() ? dy : Tensor{},
                    .saved = bytes_of(in.saved),
                    .workspace = bytes_of(in.workspace),
                    .fresh = writes(in)},
                   in.keep);
    return;
  }
  layer.forward({.stream = stream,
                 .batch = batch,
                 .params = params,
                 .x = activation(in.x),
                 .y = activation(in.y),
                 .saved = bytes_of(in.saved),
                 .workspace = bytes_of(in.workspace)},
                in.keep);
}

void Executor::run_loss(const Instruction& in, StreamRef stream, const StepInputs& inputs) {
  const std::vector<Tensor> params = views(in.layer, in.params, State::param);
  std::vector<Tensor> grads;  // none at all: evaluation
  if (running_->trains) grads = views(in.layer, in.grads, State::grad);
  const int64_t rows = parts_.shape.rows();
  const size_t first = size_t(in.micro_batch * rows);
  parts_.model.loss->run(
      {.stream = stream,
       .batch = inputs.batches[in.micro_batch],
       .params = params,
       .grads = grads,
       .x = activation(in.x),
       .dx = activation(in.y),
       .losses = {losses_.data() + first * sizeof(float), DType::f32, 1, rows},
       .hits =
           running_->trains ? Tensor{} : Tensor{hits_.data() + first * sizeof(int32_t), DType::i32, 1, rows},
       .grad_scale = float(inputs.loss_scale / double(std::max<int64_t>(1, inputs.valid_tokens))),
       .workspace = bytes_of(in.workspace),
       .fresh = writes(in)});
}

void Executor::run_gather(const Instruction& in, StreamRef stream) {
  std::vector<comm::Part> parts;
  for (const ChunkRange& range : in.chunks) {
    const bool in_place = range.region == kNoRegion;
    const Group& group = parts_.units.groups[range.group];
    const auto bytes = [&](int64_t elements) { return group.stored_bytes(elements, parts_.policy.compute); };
    std::byte* full = in_place ? parts_.store.data(State::param, range.group) : region(range.region);
    const std::byte* kept =
        in.source != kNoRegion ? region(in.source) : parts_.store.data(State::param, range.group);
    for (int c = range.first; c < range.first + range.count; ++c) {
      const Partition::Chunk& chunk = group.partition.chunks()[c];
      std::byte* recv = full + bytes(chunk.begin);
      const std::byte* send = in_place ? recv + bytes(rank_ * chunk.piece) : kept + bytes(chunk.shard);
      parts.push_back({send, recv, int64_t(bytes(chunk.piece))});
    }
  }
  communicator(in).all_gather(stream, parts, DType::u8, parts_.units.unit_names[in.layer]);
}

void Executor::run_reduce(const Instruction& in, StreamRef stream) {
  const DType grad = parts_.policy.grad, wire = parts_.policy.wire;
  const bool scatter = running_->scatter, recode = in.wire != kNoRegion;
  const int world = parts_.world;
  std::vector<comm::Part> fresh, added;         // first sum into a shard, later ones
  std::vector<std::pair<Tensor, Tensor>> back;  // wire → gradients, after an all-reduce
  std::byte* staged = recode ? region(in.wire) : nullptr;
  for (const ChunkRange& range : in.chunks) {
    std::byte* full = whole_grads({range.group, range.region});
    const bool whole = parts_.store.whole(State::grad, range.group);
    for (int c = range.first; c < range.first + range.count; ++c) {
      const Partition::Chunk& chunk = parts_.units.groups[range.group].partition.chunks()[c];
      const int64_t count = chunk.piece * world;
      std::byte* source = full + size_t(chunk.begin) * size_of(grad);
      const Tensor from{source, grad, 1, count};
      std::byte* send = source;
      if (recode) {
        const Tensor coded{staged, wire, 1, count};
        cast(stream, from, coded);
        if (!scatter) back.emplace_back(coded, from);
        send = staged;
        staged += coded.bytes();
      }
      if (!scatter) {
        fresh.push_back({send, send, count});
        continue;
      }
      const int64_t own = whole ? chunk.begin + rank_ * chunk.piece : chunk.shard;
      std::byte* recv = parts_.store.data(State::grad, range.group) + size_t(own) * size_of(grad);
      (range.accumulate ? added : fresh).push_back({send, recv, chunk.piece});
    }
  }
  comm::Communicator& comm = communicator(in);
  const std::string& unit = parts_.units.unit_names[in.layer];
  if (!scatter) comm.all_reduce(stream, fresh, wire, unit);
  if (scatter && !fresh.empty()) comm.reduce_scatter(stream, fresh, wire, grad, false, unit);
  if (scatter && !added.empty()) comm.reduce_scatter(stream, added, wire, grad, true, unit);
  for (const auto& [coded, target] : back) cast(stream, coded, target);
}

void Executor::run_sum_losses(StreamRef stream, const StepInputs& inputs) {
  for (size_t mb = 0; mb < inputs.batches.size(); ++mb) {
    const size_t first = mb * size_t(parts_.shape.rows());
    const int64_t count = inputs.batches[mb].valid_count;
    sum_exactly(stream, {losses_.data() + first * sizeof(float), DType::f32, 1, count}, &sums()->loss);
    if (running_->trains) continue;
    add_hits(stream, {hits_.data() + first * sizeof(int32_t), DType::i32, 1, count}, &sums()->hits);
  }
}

void Executor::run_scan(const Instruction& in, StreamRef stream) {
  const Group& group = parts_.units.groups[in.target.group];
  const bool whole = parts_.store.whole(State::grad, in.target.group);
  // Replicated gradients are the same everywhere: each rank scans its share of them.
  for (const Partition::Piece& piece : group.partition.pieces(rank_)) {
    std::byte* data = parts_.store.data(State::grad, in.target.group) +
                      size_t(whole ? piece.full : piece.shard) * size_of(parts_.policy.grad);
    grad_scan(stream, {data, parts_.policy.grad, 1, piece.count}, &sums()->scan,
              GradPlace{in.target.group, piece.full}.number());
  }
}

void Executor::run_norm(StreamRef stream, const StepInputs& inputs) {
  const StepSums* all = sums();
  const int world = parts_.world;
  if (world > 1) {
    all = sums() + 1;
    const comm::Part part{sums_.data(), sums_.data() + sizeof(StepSums), int64_t(sizeof(StepSums))};
    reduces_->all_gather(stream, {&part, 1}, DType::u8, "gradient norm");
  }
  combine_async(stream, all, world, inputs.loss_scale, inputs.clip, outcome());
}

// Where a region that holds a chunk's elements has those of a piece.
size_t Executor::chunk_offset(State state, int chunk, const Partition::Piece& piece) const {
  const StateChunk& c = parts_.units.chunks[size_t(chunk)];
  const bool whole = parts_.policy.optimizer == Placement::replicated;
  return parts_.store.bytes_of(state, c.group, (whole ? piece.full : piece.shard) - c.begin);
}

void Executor::run_update(const Instruction& in, StreamRef stream, const Step& step) {
  const int g = in.target.group;
  const StateStore& store = parts_.store;
  const auto view = [&](State state, const Partition::Piece& piece) {
    if (!store.exists(state, g)) return Tensor{};
    const bool brought = in.states != kNoRegion && store.in_block(state, in.chunk);
    std::byte* data = brought ? region(in.states) + store.block_offset(state, in.chunk) +
                                    chunk_offset(state, in.chunk, piece)
                              : store.at(state, g, piece);
    return Tensor(data, store.kept_as(state, g), 1, piece.count);
  };
  const auto in_region = [&](RegionId id, State state, const Partition::Piece& piece) {
    std::byte* data =
        id != kNoRegion ? region(id) + chunk_offset(state, in.chunk, piece) : store.at(state, g, piece);
    return Tensor(data, store.dtype(state), 1, piece.count);
  };
  // The CPU has the outcome where finish has handed it over.
  const StepOutcome* decided = in.lane == Lane::host ? result_slot(step) : outcome();
  for (const UpdateRun& run : update_runs_[size_t(in.chunk)]) {
    OptimizerUpdate op{.hyper = step.inputs->hyper,
                       .grad = in_region(in.source, State::grad, run.piece),
                       .master = view(State::master, run.piece),
                       .m = view(State::first_moment, run.piece),
                       .v = view(State::second_moment, run.piece),
                       .param = {},
                       .grad_factor = &decided->grad_factor,
                       .seed = parts_.policy.seed,
                       .first_index = run.first_index};
    if (!run.decay) op.hyper.weight_decay = 0;
    if (in.made != kNoRegion || parts_.policy.compute != parts_.policy.states)
      op.param = in_region(in.made, State::param, run.piece);
    optimizer_update(stream, op);
  }
}

void Executor::run_send(const Instruction& in, StreamRef stream) {
  for (const UpdateRun& run : update_runs_[size_t(in.chunk)]) {
    copy_async(stream, region(in.target.region) + chunk_offset(State::grad, in.chunk, run.piece),
               parts_.store.at(State::grad, in.target.group, run.piece),
               parts_.store.bytes_of(State::grad, in.target.group, run.piece.count));
  }
}

void Executor::run_publish(const Instruction& in, StreamRef stream) {
  for (const UpdateRun& run : update_runs_[size_t(in.chunk)]) {
    copy_async(stream, parts_.store.at(State::param, in.target.group, run.piece),
               region(in.source) + chunk_offset(State::param, in.chunk, run.piece),
               parts_.store.bytes_of(State::param, in.target.group, run.piece.count));
  }
}

// On a lane of the host: blocks it until the bytes are there.
void Executor::run_disk(const Instruction& in, StreamRef stream) {
  const auto what = in.moved == Moved::states ? StateStore::OnDisk::states : StateStore::OnDisk::params;
  const StateStore* store = &parts_.store;
  const int chunk = in.chunk;
  if (in.op == Op::write) {
    const std::byte* from = region(in.source);
    return stream.launch([=](Workers&) { store->write_extent(what, chunk, from); });
  }
  std::byte* to = region(in.target.region);
  // A group's parameters come chunk by chunk.
  if (in.moved == Moved::params)
    to += store->bytes_of(State::param, in.target.group, parts_.units.chunks[size_t(chunk)].begin);
  stream.launch([=](Workers&) { store->read_extent(what, chunk, to); });
}

void Executor::run_copy(const Instruction& in, StreamRef stream) {
  const StateStore& store = parts_.store;
  const int g = in.target.group;
  const RegionId far = in.op == Op::fetch ? in.target.region : in.source;   // on the device
  const RegionId near = in.op == Op::fetch ? in.source : in.target.region;  // on the host
  const auto copy = [&](std::byte* device, std::byte* host, size_t bytes) {
    if (in.op == Op::fetch) return copy_async(stream, device, host, bytes);
    copy_async(stream, host, device, bytes);
  };
  if (in.moved == Moved::activation) return copy(region(far), region(near), running_->regions[far].bytes);
  if (in.moved == Moved::params) {
    const Group& group = parts_.units.groups[size_t(g)];
    const StateChunk all{g, 0, store.whole(State::param, g) ? group.padded() : group.partition.shard()};
    const StateChunk& part = in.chunk < 0 ? all : parts_.units.chunks[size_t(in.chunk)];
    std::byte* host = near != kNoRegion
                          ? region(near)
                          : store.data(State::param, g) + store.bytes_of(State::param, g, part.begin);
    return copy(region(far), host, store.bytes_of(State::param, g, part.count));
  }
  if (near != kNoRegion) return copy(region(far), region(near), store.block_bytes(in.chunk));
  for (State state : kOptimizerStates) {
    if (!store.in_block(state, in.chunk)) continue;
    copy(region(far) + store.block_offset(state, in.chunk), store.home(state, in.chunk),
         store.bytes_of(state, g, parts_.units.chunks[size_t(in.chunk)].count));
  }
}

}  // namespace zeno::zero
