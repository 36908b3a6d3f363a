// What each instruction does on its stream.
#include <algorithm>

#include "zeno/base/error.h"
#include "zeno/device/copy.h"
#include "zeno/kernels/elementwise.h"
#include "zeno/kernels/nf4.h"
#include "zeno/kernels/wire_cells.h"
#include "zeno/zero/executor.h"

namespace zeno::zero {
namespace {

StateStore::OnDisk on_disk(Moved kind) {
  return kind == Moved::states ? StateStore::OnDisk::states : StateStore::OnDisk::params;
}

}  // namespace

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

// The gradients of a group that this rank updates: one after the other in a region, or where they are kept.
std::vector<Tensor> Executor::owned_grads(int group, RegionId id) const {
  std::vector<Tensor> pieces;
  std::byte* next = id != kNoRegion ? region(id) : nullptr;
  for (const Partition::Piece& piece : parts_.store.owned(group)) {
    std::byte* at = id != kNoRegion ? next : parts_.store.at(State::grad, group, piece);
    pieces.emplace_back(at, parts_.policy.grad, 1, piece.count);
    if (id != kNoRegion) next += pieces.back().bytes();
  }
  return pieces;
}

// Views of a layer's tensors in the layer's order; empty where the instruction binds nothing (frozen, not
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

void Executor::dispatch(const Instruction& in, StreamRef stream, const Step& step) {
  std::visit([&](const auto& op) { run(op, Turn{in, stream, step}); }, in.action);
}

void Executor::run(const Start&, const Turn& turn) {
  if (!turn.inputs().continues) fill_zero_async(turn.stream, sums_.data(), sizeof(StepSums));
}

void Executor::run(const Decode& op, const Turn& turn) {
  const Group& group = parts_.units.groups[size_t(op.group)];
  const std::byte* cells = op.from != kNoRegion ? region(op.from) : parts_.store.data(State::param, op.group);
  const Tensor values{region(op.to), parts_.policy.compute, 1, group.padded()};
  if (group.int8) return wire_decode(turn.stream, WireCode::int8, cells, values);
  nf4_decode(turn.stream, reinterpret_cast<const Nf4Cell*>(cells), values);
}

void Executor::run(const ZeroGrads& op, const Turn& turn) {
  const int64_t count = parts_.units.groups[size_t(op.grads.group)].padded();
  fill_zero_async(turn.stream, whole_grads(op.grads), size_t(count) * size_of(parts_.policy.grad));
}

void Executor::run(const AddGrads& op, const Turn& turn) {
  const DType grad = parts_.policy.grad;
  if (op.owned) {
    const std::vector<Tensor> sums = owned_grads(op.sum.group, op.sum.region),
                              others = owned_grads(op.sum.group, op.from);
    for (size_t i = 0; i < sums.size(); ++i) add(turn.stream, sums[i], others[i], sums[i]);
    return;
  }
  const int64_t count = parts_.units.groups[size_t(op.sum.group)].padded();
  const Tensor sum{whole_grads(op.sum), grad, 1, count};
  add(turn.stream, sum, {region(op.from), grad, 1, count}, sum);
}

void Executor::run(const Forward& op, const Turn& turn) {
  const int layer = turn.in.unit;
  const std::vector<Tensor> params = views(layer, op.params, State::param);
  parts_.model.layers[size_t(layer)]->forward({.stream = turn.stream,
                                               .batch = turn.inputs().batches[size_t(turn.in.micro_batch)],
                                               .params = params,
                                               .x = activation(op.x),
                                               .y = activation(op.y),
                                               .saved = bytes_of(op.saved),
                                               .workspace = bytes_of(op.workspace),
                                               .cache = {},
                                               .part = op.part.index},
                                              op.keep);
}

void Executor::run(const Backward& op, const Turn& turn) {
  const int layer = turn.in.unit;
  const std::vector<Tensor> params = views(layer, op.params, State::param);
  const std::vector<Tensor> grads = views(layer, op.grads.groups, State::grad);
  const Tensor dy = activation(op.dy);
  parts_.model.layers[size_t(layer)]->backward({.stream = turn.stream,
                                                .batch = turn.inputs().batches[size_t(turn.in.micro_batch)],
                                                .params = params,
                                                .grads = grads,
                                                .x = activation(op.x),
                                                .dy = dy,
                                                .dx = layer > parts_.units.first_trained() ? dy : Tensor{},
                                                .saved = bytes_of(op.saved),
                                                .workspace = bytes_of(op.workspace),
                                                .fresh = op.grads.fresh,
                                                .part = op.part.index},
                                               op.keep);
}

void Executor::run(const Loss& op, const Turn& turn) {
  const StepInputs& inputs = turn.inputs();
  const std::vector<Tensor> params = views(turn.in.unit, op.params, State::param);
  std::vector<Tensor> grads;  // empty in an evaluation
  if (running_->trains) grads = views(turn.in.unit, op.grads.groups, State::grad);
  const int64_t rows = parts_.shape.rows();
  const size_t first = size_t(turn.in.micro_batch * rows);
  parts_.model.loss->run(
      {.stream = turn.stream,
       .batch = inputs.batches[size_t(turn.in.micro_batch)],
       .params = params,
       .grads = grads,
       .x = activation(op.x),
       .dx = activation(op.dx),
       .losses = {losses_.data() + first * sizeof(float), DType::f32, 1, rows},
       .hits =
           running_->trains ? Tensor{} : Tensor{hits_.data() + first * sizeof(int32_t), DType::i32, 1, rows},
       .grad_scale = float(inputs.loss_scale / double(std::max<int64_t>(1, inputs.valid_tokens))),
       .workspace = bytes_of(op.workspace),
       .fresh = op.grads.fresh});
}

void Executor::run(const SumLosses&, const Turn& turn) {
  const StepInputs& inputs = turn.inputs();
  for (size_t mb = 0; mb < inputs.batches.size(); ++mb) {
    const size_t first = mb * size_t(parts_.shape.rows());
    const int64_t count = inputs.batches[mb].valid_count;
    sum_exactly(turn.stream, {losses_.data() + first * sizeof(float), DType::f32, 1, count}, &sums()->loss);
    if (running_->trains) continue;
    add_hits(turn.stream, {hits_.data() + first * sizeof(int32_t), DType::i32, 1, count}, &sums()->hits);
  }
}

void Executor::run(const Scan& op, const Turn& turn) {
  const Group& group = parts_.units.groups[op.group];
  // Where several ranks keep the same gradients, each scans its share of them.
  for (const Partition::Piece& piece : group.partition.pieces(rank_, comm::kDataAxes)) {
    grad_scan(turn.stream,
              {parts_.store.at(State::grad, op.group, piece), parts_.policy.grad, 1, piece.count},
              &sums()->scan, GradPlace{op.group, piece.full}.number());
  }
}

void Executor::run(const Finish&, const Turn& turn) {
  copy_async(turn.stream, reinterpret_cast<std::byte*>(result_slot(turn.step)), outcome_.data(),
             sizeof(StepOutcome));
}

// Offset of a piece in a region that holds a chunk's elements.
size_t Executor::chunk_offset(State state, int chunk, const Partition::Piece& piece) const {
  const StateChunk& c = parts_.units.chunks[size_t(chunk)];
  const bool whole = parts_.policy.optimizer.empty();
  return parts_.store.bytes_of(state, c.group, (whole ? piece.full : piece.shard) - c.begin);
}

void Executor::run(const Update& op, const Turn& turn) {
  const int g = op.group;
  const StateStore& store = parts_.store;
  const auto view = [&](State state, const Partition::Piece& piece) {
    if (!store.exists(state, g)) return Tensor{};
    const bool brought = op.states != kNoRegion && store.in_block(state, op.chunk);
    std::byte* data = brought ? region(op.states) + store.block_offset(state, op.chunk) +
                                    chunk_offset(state, op.chunk, piece)
                              : store.at(state, g, piece);
    return Tensor(data, store.kept_as(state, g), 1, piece.count);
  };
  const auto in_region = [&](RegionId id, State state, const Partition::Piece& piece) {
    std::byte* data =
        id != kNoRegion ? region(id) + chunk_offset(state, op.chunk, piece) : store.at(state, g, piece);
    return Tensor(data, store.dtype(state), 1, piece.count);
  };
  // The CPU reads the outcome that Finish has copied to the host.
  const StepOutcome* decided = turn.in.lane == Lane::host ? result_slot(turn.step) : outcome();
  for (const UpdateRun& run : update_runs_[size_t(op.chunk)]) {
    OptimizerUpdate update{.hyper = turn.inputs().hyper,
                           .grad = in_region(op.grads, State::grad, run.piece),
                           .master = view(State::master, run.piece),
                           .m = view(State::first_moment, run.piece),
                           .v = view(State::second_moment, run.piece),
                           .param = {},
                           .grad_factor = &decided->grad_factor,
                           .seed = parts_.policy.seed,
                           .first_index = run.first_index};
    if (!run.decay) update.hyper.weight_decay = 0;
    if (op.made != kNoRegion || parts_.policy.compute != parts_.policy.states)
      update.param = in_region(op.made, State::param, run.piece);
    optimizer_update(turn.stream, update);
  }
}

void Executor::run(const GradsToHost& op, const Turn& turn) {
  for (const UpdateRun& run : update_runs_[size_t(op.chunk)]) {
    copy_async(turn.stream, region(op.to) + chunk_offset(State::grad, op.chunk, run.piece),
               parts_.store.at(State::grad, op.group, run.piece),
               parts_.store.bytes_of(State::grad, op.group, run.piece.count));
  }
}

// Runs on a lane of the host, which it blocks until the bytes are read.
void Executor::run(const Read& op, const Turn& turn) {
  const auto [kind, group, chunk] = op.payload;
  const StateStore* store = &parts_.store;
  std::byte* to = region(op.to);
  // A group's parameters are read chunk by chunk.
  if (kind == Moved::params)
    to += store->bytes_of(State::param, group, parts_.units.chunks[size_t(chunk)].begin);
  turn.stream.launch(
      [store, what = on_disk(kind), chunk = chunk, to](Workers&) { store->read_extent(what, chunk, to); });
}

void Executor::run(const Write& op, const Turn& turn) {
  turn.stream.launch([store = &parts_.store, payload = op.payload, from = region(op.from)](Workers&) {
    store->write_extent(on_disk(payload.kind), payload.chunk, from);
  });
}

template <class Body>
void Executor::for_stretches(const Payload& payload, RegionId on_device, RegionId on_host,
                             const Body& body) const {
  const StateStore& store = parts_.store;
  const auto [kind, g, c] = payload;
  if (kind == Moved::activation)
    return body(region(on_device), region(on_host), running_->regions[size_t(on_device)].bytes);
  if (kind == Moved::params) {
    const Group& group = parts_.units.groups[size_t(g)];
    const StateChunk all{g, 0, group.partition.shard(group.params)};
    const StateChunk& part = c < 0 ? all : parts_.units.chunks[size_t(c)];
    std::byte* host = on_host != kNoRegion
                          ? region(on_host)
                          : store.data(State::param, g) + store.bytes_of(State::param, g, part.begin);
    return body(region(on_device), host, store.bytes_of(State::param, g, part.count));
  }
  if (on_host != kNoRegion) return body(region(on_device), region(on_host), store.block_bytes(c));
  for (State state : kOptimizerStates) {
    if (!store.in_block(state, c)) continue;
    body(region(on_device) + store.block_offset(state, c), store.home(state, c),
         store.bytes_of(state, g, parts_.units.chunks[size_t(c)].count));
  }
}

void Executor::run(const Fetch& op, const Turn& turn) {
  if (op.to == kNoRegion) return publish(op, turn.stream);
  for_stretches(op.payload, op.to, op.from, [&](std::byte* device, const std::byte* host, size_t bytes) {
    copy_async(turn.stream, device, host, bytes);
  });
}

void Executor::run(const Store& op, const Turn& turn) {
  for_stretches(op.payload, op.from, op.to, [&](const std::byte* device, std::byte* host, size_t bytes) {
    copy_async(turn.stream, host, device, bytes);
  });
}

// Copies parameters that the CPU made to where they are kept.
void Executor::publish(const Fetch& op, StreamRef stream) {
  const auto [kind, group, chunk] = op.payload;
  for (const UpdateRun& run : update_runs_[size_t(chunk)]) {
    copy_async(stream, parts_.store.at(State::param, group, run.piece),
               region(op.from) + chunk_offset(State::param, chunk, run.piece),
               parts_.store.bytes_of(State::param, group, run.piece.count));
  }
}

}  // namespace zeno::zero
