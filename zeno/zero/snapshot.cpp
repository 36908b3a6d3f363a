#include "zeno/zero/snapshot.h"

#include <algorithm>

#include "zeno/base/math.h"
#include "zeno/device/copy.h"

namespace zeno::zero {

Snapshot::Snapshot(const UnitTable& units, const StateStore& store, int rank, int64_t most)
    : units_(units), store_(store) {
  for (int param = 0; param < int(units.params.size()); ++param) {
    if (!units.params[param].trainable) continue;
    for (State state : {State::master, State::first_moment, State::second_moment}) {
      if (store.exists(state, units.places[param].group)) add(state, param, rank, most);
    }
  }
}

void Snapshot::add(State state, int param, int rank, int64_t most) {
  const ParamPlace place = units_.places[param];
  const Group& group = units_.groups[place.group];
  const int64_t offset = group.layout.tensors()[place.tensor].offset;
  const int64_t end = offset + units_.params[param].count();
  for (const Partition::Piece& run : group.partition.pieces(rank, offset, end)) {
    for (int64_t done = 0; done < run.count;) {
      const int64_t begin = run.full + done - offset;
      const int64_t count = std::min(run.count - done, most - begin % most);
      const size_t bytes = size_t(count) * size_of(store_.dtype(state));
      pieces_.push_back({state, param, begin, count});
      places_.push_back({place.group, {run.full + done, run.shard + done, count}, size_, bytes});
      size_ = round_up(size_ + bytes, size_t(64));
      done += count;
    }
  }
}

void Snapshot::book(Ledger& ledger) const { ledger.book(Tier::host, Purpose::staging, size_); }

void Snapshot::allocate(Ledger& ledger, Device device) {
  buffer_ = Buffer(ledger, Tier::host, Purpose::staging, size_,
                   [device](size_t bytes) { return allocate_pinned(device, bytes); });
}

void Snapshot::copy(StreamRef stream) {
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const Place& place = places_[i];
    copy_async(stream, buffer_.data() + place.offset, store_.at(pieces_[i].state, place.group, place.piece),
               place.bytes);
  }
}

std::span<const std::byte> Snapshot::bytes(size_t piece) const {
  return {buffer_.data() + places_[piece].offset, places_[piece].bytes};
}

}  // namespace zeno::zero
