#include "zeno/zero/state_store.h"

#include "zeno/base/error.h"
#include "zeno/base/math.h"
#include "zeno/device/copy.h"

namespace zeno::zero {
namespace {

constexpr std::array kAllStates{State::param, State::grad, State::master, State::first_moment,
                                State::second_moment};

Purpose purpose_of(State state) {
  switch (state) {
    case State::param:
      return Purpose::parameters;
    case State::grad:
      return Purpose::gradients;
    case State::master:
      return Purpose::masters;
    default:
      return Purpose::moments;
  }
}

}  // namespace

StateStore::StateStore(const UnitTable& units, const Policy& policy, int rank)
    : units_(units), policy_(policy) {
  ensure(policy.params == Placement::replicated || policy.optimizer == Placement::sharded,
         "[state] sharded parameters need a sharded optimizer");
  const bool shard_optimizer = policy.optimizer == Placement::sharded;
  for (auto& slots : slots_) slots.resize(units.groups.size());
  for (int g = 0; g < int(units.groups.size()); ++g) {
    const Group& group = units.groups[g];
    const bool params_whole = policy.params == Placement::replicated || group.persistent;
    add_slot(State::param, g, params_whole);
    owned_.push_back(shard_optimizer ? group.partition.pieces(rank)
                                     : std::vector<Partition::Piece>{{0, 0, group.layout.size()}});
    if (!group.trainable) continue;
    add_slot(State::grad, g, policy.grads == Placement::replicated || group.sparse);
    if (policy.compute != policy.states) add_slot(State::master, g, !shard_optimizer);
    if (policy.moments_first) add_slot(State::first_moment, g, !shard_optimizer);
    if (policy.moments_second) add_slot(State::second_moment, g, !shard_optimizer);
    if (policy.compute == policy.states) slots_[int(State::master)][g] = slot(State::param, g);
  }
}

void StateStore::add_slot(State state, int group, bool whole) {
  const Partition& partition = units_.groups[group].partition;
  const int64_t count = whole ? partition.padded() : partition.shard();
  // Cells leave an odd end; what follows them starts as well aligned as elsewhere.
  constexpr size_t kSlotAlign = 128;
  const size_t bytes = round_up(bytes_of(state, group, count), kSlotAlign);
  slots_[int(state)][group] = {bytes_[int(state)], bytes, whole};
  bytes_[int(state)] += bytes;
}

size_t StateStore::bytes_of(State state, int group, int64_t elements) const {
  if (state == State::param) return units_.groups[group].stored_bytes(elements, policy_.compute);
  return size_t(elements) * size_of(dtype(state));
}

DType StateStore::dtype(State state) const {
  if (state == State::param) return policy_.compute;
  return state == State::grad ? policy_.grad : policy_.states;
}

void StateStore::book(Ledger& ledger) const {
  for (State state : kAllStates) {
    ledger.book(Tier::device, purpose_of(state), bytes_[int(state)]);
  }
}

void StateStore::allocate(Ledger& ledger, const Allocator& allocator, StreamRef stream) {
  for (State state : kAllStates) {
    buffers_[int(state)] = Buffer(ledger, Tier::device, purpose_of(state), bytes_[int(state)], allocator);
  }
  clear(stream);
}

void StateStore::clear(StreamRef stream) const {
  for_buffers([&](const Buffer& buffer) { fill_zero_async(stream, buffer.data(), buffer.bytes()); });
  stream.synchronize();
}

std::byte* StateStore::data(State state, int group) const {
  const bool alias = state == State::master && policy_.compute == policy_.states;
  const Buffer& buffer = buffers_[int(alias ? State::param : state)];
  return buffer.data() + slot(state, group).offset;
}

std::byte* StateStore::at(State state, int group, const Partition::Piece& piece) const {
  const int64_t index = slot(state, group).whole ? piece.full : piece.shard;
  return data(state, group) + bytes_of(state, group, index);
}

size_t StateStore::model_state_bytes() const {
  size_t bytes = 0;
  for (State state : kAllStates) bytes += bytes_[int(state)];
  return bytes;
}

}  // namespace zeno::zero
