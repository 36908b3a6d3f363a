#include "zeno/zero/snapshot.h"

#include <algorithm>
#include <cstring>

#include "zeno/base/error.h"
#include "zeno/base/math.h"
#include "zeno/device/copy.h"
#include "zeno/kernels/master_rest.h"
#include "zeno/kernels/moment_cells.h"

namespace zeno::zero {

Snapshot::Snapshot(const UnitTable& units, const StateStore& store, int rank, int64_t most, Mode mode)
    : units_(units), store_(store), mode_(mode) {
  const auto add_all = [&](bool on_file) {
    for (int param = 0; param < int(units.params.size()); ++param) {
      if (units.params[size_t(param)].trainable) add(param, rank, most, on_file);
    }
  };
  add_all(false);
  in_memory_ = pieces_.size();
  add_all(true);
  if (in_memory_ < pieces_.size()) lay_out_file(most);
}

// The states of a range are adjacent: on disk they are one extent.
void Snapshot::add(int param, int rank, int64_t most, bool on_file) {
  const ParamPlace place = units_.places[size_t(param)];
  const Group& group = units_.groups[size_t(place.group)];
  if (group.stage != units_.stage.index) return;
  const int64_t offset = group.layout.tensors()[size_t(place.tensor)].offset;
  const int64_t end = offset + units_.params[size_t(param)].count();
  for (const Partition::Piece& run : group.partition.pieces(rank, comm::kDataAxes, offset, end)) {
    for (int64_t done = 0; done < run.count;) {
      const int64_t begin = run.full + done - offset;
      const int64_t left =
          store_.count_in_chunk(place.group, {run.full + done, run.shard + done, run.count - done});
      const int64_t count = std::min(left, most - begin % most);
      for (State state : kOptimizerStates) {
        if (!store_.exists(state, place.group)) continue;
        const Partition::Piece piece{run.full + done, run.shard + done, count};
        if (in_file(state, place.group, piece) != on_file) continue;
        const size_t bytes = size_t(count) * size_of(store_.value_dtype(state));
        pieces_.push_back({state, param, begin, count});
        places_.push_back({place.group, piece, size_, bytes});
        size_ += bytes;
      }
      done += count;
    }
  }
}

// Whether the piece is on disk as a checkpoint stores it, and in no other rank's file.
bool Snapshot::in_file(State state, int group, const Partition::Piece& piece) const {
  const Partition& partition = units_.groups[size_t(group)].partition;
  const bool once = partition.shard(store_.axes(state, group)) == partition.shard(comm::kDataAxes);
  if (!once || store_.dtype(State::first_moment) == DType::u8) return false;
  const StateStore::Stretch stretch = store_.stretches(state, group, piece).front();
  return stretch.tier == Tier::disk && store_.in_block(state, stretch.chunk);
}

// The layout of the file's extents, without gaps.
void Snapshot::lay_out_file(int64_t most) {
  struct Mark {
    size_t offset = 0, bytes = 0;
    int piece = 0;
  };
  std::vector<std::vector<Mark>> marks(units_.chunks.size());
  constexpr size_t kEntry = 192, kFill = 128;  // bytes in a header besides the name, rounded up
  for (size_t i = in_memory_; i < pieces_.size(); ++i) {
    const auto stretch = store_.stretches(pieces_[i].state, places_[i].group, places_[i].piece).front();
    marks[size_t(stretch.chunk)].push_back({stretch.offset, stretch.bytes, int(i)});
    layout_.head += kEntry + units_.params[size_t(pieces_[i].param)].name.size();
  }
  layout_.cuts.resize(units_.chunks.size());
  for (int c = 0; c < int(units_.chunks.size()); ++c) {
    if (!store_.has_extent(StateStore::OnDisk::states, c)) continue;
    std::vector<Mark>& list = marks[size_t(c)];
    std::ranges::sort(list, {}, &Mark::offset);
    size_t at = 0;
    const auto add = [&](int piece, size_t bytes) {
      file_parts_.push_back({piece, bytes});
      layout_.cuts[size_t(c)].push_back(at);
      at += bytes;
    };
    // Padding is no longer than a piece may be, because a reader takes it for one.
    const auto fill_up_to = [&](size_t end) {
      while (at < end) {
        add(-1, std::min(end - at, size_t(most)));
        layout_.head += kFill;
      }
    };
    for (const Mark& mark : list) {
      fill_up_to(mark.offset);
      add(mark.piece, mark.bytes);
    }
    fill_up_to(store_.extent_bytes(StateStore::OnDisk::states, c));
  }
  layout_.head = round_up(layout_.head, kDirectAlign);
}

std::optional<DiskStore::Given> Snapshot::give_file(const Path& folder) {
  if (file_parts_.empty()) return std::nullopt;
  begun_.synchronize();
  return store_.give_states(folder);
}

// For one part of the image.
size_t Snapshot::room() const { return round_up(std::min(kPart, size_), kDirectAlign); }

size_t Snapshot::staging_bytes() const {
  return mode_ == Mode::copied ? size_ : 2 * room() + store_.largest_extent(StateStore::OnDisk::states);
}

void Snapshot::book(Ledger& ledger, int copies) const {
  ledger.book(Tier::host, Purpose::staging, staging_bytes() + size_ * size_t(copies));
  ledger.book(Tier::disk, Purpose::staging, layout_.head);
}

void Snapshot::allocate(Ledger& ledger, Device device) {
  buffer_ = Buffer(ledger, Tier::host, Purpose::staging, staging_bytes(),
                   [device](size_t bytes) { return allocate_pinned(device, bytes); });
  ledger.take(Tier::disk, Purpose::staging, layout_.head);
}

void Snapshot::copy(StreamRef stream) {
  if (mode_ == Mode::streamed) {
    extent_chunk_ = -1;
    stream_ = stream;
    begun_.record(stream);
    const std::scoped_lock lock(mutex_);
    in_use_ = true;
    return;
  }
  constexpr size_t kAtOnce = size_t(32) << 20;
  copied_.clear();
  joined_.assign(places_.size(), 0);
  size_t begin = 0;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const Place& place = places_[i];
    std::byte* to = buffer_.data() + place.offset;
    const auto copy_state = [&](State state) {
      for (const StateStore::Stretch& stretch : store_.stretches(state, place.group, place.piece)) {
        copy_async(stream, to, stretch.data, stretch.bytes);
        to += stretch.bytes;
      }
    };
    copy_state(pieces_[i].state);
    if (split(i)) copy_state(State::param);
    const size_t end = place.offset + place.bytes;
    if (end - begin < kAtOnce && i + 1 < pieces_.size()) continue;
    copied_.push_back({end, {}});
    copied_.back().done.record(stream);
    begin = end;
  }
}

void Snapshot::release() {
  {
    const std::scoped_lock lock(mutex_);
    in_use_ = false;
  }
  changed_.notify_all();
}

void Snapshot::await_release() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !in_use_; });
}

std::span<const std::byte> Snapshot::part(size_t begin, size_t end) {
  ensure(end - begin <= kPart, "[snapshot] a part of {} bytes", end - begin);
  if (mode_ == Mode::copied) {
    await_copied(end);
    join_copied(begin, end);
    return {buffer_.data() + begin, end - begin};
  }
  begun_.synchronize();
  std::byte* const to = buffer_.data() + turn_++ % 2 * room();
  size_t i = place_at(begin);
  for (size_t at = begin; at < end; ++i) {
    const size_t skip = at - places_[i].offset, bytes = std::min(places_[i].bytes - skip, end - at);
    read(i, skip, {to + (at - begin), bytes});
    at += bytes;
  }
  stream_->synchronize();
  return {to, end - begin};
}

size_t Snapshot::place_at(size_t offset) const {
  return size_t(std::ranges::upper_bound(places_, offset, {}, &Place::offset) - places_.begin()) - 1;
}

void Snapshot::await_copied(size_t end) {
  const auto copied = std::ranges::find_if(copied_, [&](const Copied& c) { return c.end >= end; });
  if (copied != copied_.end()) copied->done.synchronize();
}

// Split masters were copied as the rests of a piece, then its parameters. A piece is joined before any of it
// is returned, and never changes again.
void Snapshot::join_copied(size_t begin, size_t end) {
  if (begin == end) return;
  const std::scoped_lock lock(joining_);
  for (size_t i = place_at(begin); i < places_.size() && places_[i].offset < end; ++i) {
    if (joined_[i] || !split(i)) continue;
    const Place& place = places_[i];
    await_copied(place.offset + place.bytes);
    std::byte* const image = buffer_.data() + place.offset;
    std::vector<int16_t> rests(static_cast<size_t>(place.piece.count));
    std::vector<uint16_t> copies(rests.size());
    std::memcpy(rests.data(), image, place.bytes / 2);
    std::memcpy(copies.data(), image + place.bytes / 2, place.bytes / 2);
    join_masters(copies, rests, image);
    joined_[i] = 1;
  }
}

// Reads a range of a piece, from wherever it is kept.
void Snapshot::read(size_t i, size_t skip, std::span<std::byte> out) {
  const Place& place = places_[i];
  const State state = pieces_[i].state;
  const int64_t size = int64_t(size_of(store_.value_dtype(state))), first = int64_t(skip) / size;
  // An image with dtypes of several sizes may have parts that begin or end within an element.
  if (const size_t lead = skip % size_t(size); lead != 0 || out.size() % size_t(size) != 0) {
    std::vector<std::byte> whole(round_up(lead + out.size(), size_t(size)));
    read(i, skip - lead, whole);
    stream_->synchronize();
    std::memcpy(out.data(), whole.data() + lead, out.size());
    return;
  }
  const Partition::Piece piece{place.piece.full + first, place.piece.shard + first,
                               int64_t(out.size()) / size};
  if (store_.dtype(state) == DType::u8) return read_cells(state, place.group, piece, out);
  if (split(i)) return read_split(place.group, piece, out.data());
  read_bytes(state, place.group, piece, out.data());
}

// Reads the decoded values of cells. A part of the image may begin within a cell.
void Snapshot::read_cells(State state, int group, const Partition::Piece& piece, std::span<std::byte> out) {
  const int64_t skip = piece.full % kMomentCell;
  const Partition::Piece whole{piece.full - skip, piece.shard - skip, piece.count + skip};
  std::vector<MomentCell> cells(static_cast<size_t>(moment_cells(whole.count)));
  read_bytes(state, group, whole, reinterpret_cast<std::byte*>(cells.data()));
  stream_->synchronize();
  std::vector<float> values(static_cast<size_t>(whole.count));
  decode_moments(cells.data(), state == State::first_moment ? StateRole::m : StateRole::v, values);
  std::memcpy(out.data(), values.data() + skip, out.size());
}

void Snapshot::read_split(int group, const Partition::Piece& piece, std::byte* to) {
  std::vector<int16_t> rests(static_cast<size_t>(piece.count));
  std::vector<uint16_t> copies(rests.size());
  read_bytes(State::master, group, piece, reinterpret_cast<std::byte*>(rests.data()));
  read_bytes(State::param, group, piece, reinterpret_cast<std::byte*>(copies.data()));
  stream_->synchronize();
  join_masters(copies, rests, to);
}

void Snapshot::read_bytes(State state, int group, const Partition::Piece& piece, std::byte* to) {
  for (const StateStore::Stretch& stretch : store_.stretches(state, group, piece)) {
    if (stretch.tier == Tier::device) {
      copy_async(*stream_, to, stretch.data, stretch.bytes);
    } else {
      const std::byte* from =
          stretch.tier == Tier::disk ? extent(stretch.chunk) + stretch.offset : stretch.data;
      std::memcpy(to, from, stretch.bytes);
    }
    to += stretch.bytes;
  }
}

const std::byte* Snapshot::extent(int chunk) {
  std::byte* const to = buffer_.data() + 2 * room();
  if (chunk == extent_chunk_) return to;
  extent_chunk_ = -1;
  store_.read_extent(StateStore::OnDisk::states, chunk, to);
  extent_chunk_ = chunk;
  return to;
}

}  // namespace zeno::zero
