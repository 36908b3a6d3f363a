#include "zeno/zero/snapshot.h"

#include <algorithm>

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
      size_ += bytes;
      done += count;
    }
  }
}

void Snapshot::book(Ledger& ledger, int copies) const {
  ledger.book(Tier::host, Purpose::staging, size_ * size_t(1 + copies));
}

void Snapshot::allocate(Ledger& ledger, Device device) {
  buffer_ = Buffer(ledger, Tier::host, Purpose::staging, size_,
                   [device](size_t bytes) { return allocate_pinned(device, bytes); });
}

void Snapshot::copy(StreamRef stream) {
  constexpr size_t kPart = size_t(32) << 20;
  parts_.clear();
  size_t begin = 0;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const Place& place = places_[i];
    copy_async(stream, buffer_.data() + place.offset, store_.at(pieces_[i].state, place.group, place.piece),
               place.bytes);
    const size_t end = place.offset + place.bytes;
    if (end - begin < kPart && i + 1 < pieces_.size()) continue;
    parts_.push_back({end, {}});
    parts_.back().copied.record(stream);
    begin = end;
  }
}

void Snapshot::wait(size_t bytes) const {
  for (const Part& part : parts_) {
    if (part.end < bytes) continue;
    return part.copied.synchronize();
  }
}

}  // namespace zeno::zero
