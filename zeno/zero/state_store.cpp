#include "zeno/zero/state_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/host.h"
#include "zeno/base/math.h"
#include "zeno/device/copy.h"
#include "zeno/device/device.h"
#include "zeno/kernels/master_rest.h"
#include "zeno/kernels/moment_cells.h"

namespace zeno::zero {
namespace {

constexpr std::array kAllStates{State::param, State::grad, State::master, State::first_moment,
                                State::second_moment};
// The size of cells may be odd; this aligns what follows them.
constexpr size_t kSlotAlign = 128;

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
    : units_(units), policy_(policy), rank_(rank) {
  for (auto& slots : slots_) slots.resize(units.groups.size());
  for (auto& offsets : offsets_) offsets.resize(units.chunks.size());
  for (auto& extents : extents_) extents.resize(units.chunks.size(), kNone);
  for (int g = 0; g < int(units.groups.size()); ++g) {
    const Group& group = units.groups[g];
    owned_.push_back(group.optimizer.empty() ? std::vector<Partition::Piece>{{0, 0, group.layout.size()}}
                                             : group.partition.pieces(rank, group.optimizer));
    place_group(g);
  }
  for (int c = 0; c < int(units.chunks.size()); ++c) place_chunk(c);
}

void StateStore::place_group(int g) {
  const Group& group = units_.groups[g];
  if (!group.here) return;
  const auto add = [&](State state, comm::Axes axes) -> Slot& {
    return slots_[size_t(state)][size_t(g)] = {0, true, axes};
  };
  const auto bytes = [&](State state, comm::Axes axes) {
    return bytes_of(state, g, group.partition.shard(axes));
  };
  Slot& params = add(State::param, group.params);
  if (group.tier != Tier::disk)
    params.offset = take(group.tier, State::param, bytes(State::param, group.params));
  if (!group.trainable) return;
  add(State::grad, group.grads).offset = take(Tier::device, State::grad, bytes(State::grad, group.grads));
  add(State::master, aliased(g) ? group.params : group.optimizer);
  if (policy_.moments_first) add(State::first_moment, group.optimizer);
  if (policy_.moments_second) add(State::second_moment, group.optimizer);
}

void StateStore::place_chunk(int c) {
  const StateChunk& chunk = units_.chunks[size_t(c)];
  const auto add_extent = [&](OnDisk what) {
    extent_of(what, c) = written_[size_t(what)].size();
    written_[size_t(what)].push_back(0);
  };
  if (units_.groups[chunk.group].tier == Tier::disk) {
    add_extent(OnDisk::params);
    take(Tier::disk, State::param, extent_bytes(OnDisk::params, c));
  }
  for (State state : kOptimizerStates) offset_of(state, c) = take(chunk.tier, state, part_bytes(state, c));
  const size_t block = block_bytes(c);
  if (chunk.tier != Tier::disk || block == 0) return;
  add_extent(OnDisk::states);
  // An extent is made of whole pages.
  take(Tier::disk, State::master, extent_bytes(OnDisk::states, c) - block);
}

// Returns where the bytes begin in the buffer of their tier.
size_t StateStore::take(Tier tier, State state, size_t bytes) {
  size_t& total = bytes_[size_t(tier)][size_t(state)];
  const size_t offset = total;
  total += round_up(bytes, kSlotAlign);
  return offset;
}

// Masters and parameters are the same memory if they have one dtype and parameters do not move for use.
bool StateStore::aliased(int group) const {
  return policy_.compute == policy_.states && !units_.groups[group].moves;
}

size_t StateStore::bytes_of(State state, int group, int64_t elements) const {
  if (state == State::param) return units_.groups[group].stored_bytes(elements, policy_.compute);
  if (dtype(state) == DType::u8) return moment_bytes(elements);
  return size_t(elements) * size_of(kept_as(state, group));
}

DType StateStore::kept_as(State state, int group) const {
  return state == State::master && split(group) ? DType::i16 : dtype(state);
}

DType StateStore::dtype(State state) const {
  if (state == State::param) return policy_.compute;
  if (state == State::grad) return policy_.grad;
  return state == State::master ? policy_.states : policy_.moments.value_or(policy_.states);
}

bool StateStore::in_block(State state, int chunk) const {
  const int group = units_.chunks[size_t(chunk)].group;
  return exists(state, group) && !(state == State::master && aliased(group));
}

size_t StateStore::part_bytes(State state, int chunk) const {
  const StateChunk& c = units_.chunks[size_t(chunk)];
  return in_block(state, chunk) ? round_up(bytes_of(state, c.group, c.count), kSlotAlign) : 0;
}

size_t StateStore::block_offset(State state, int chunk) const {
  size_t offset = 0;
  for (State before : kOptimizerStates) {
    if (before == state) break;
    offset += part_bytes(before, chunk);
  }
  return offset;
}

size_t StateStore::block_bytes(int chunk) const {
  return block_offset(kOptimizerStates.back(), chunk) + part_bytes(kOptimizerStates.back(), chunk);
}

size_t StateStore::extent_bytes(OnDisk what, int chunk) const {
  const StateChunk& c = units_.chunks[size_t(chunk)];
  return round_up(what == OnDisk::states ? block_bytes(chunk) : bytes_of(State::param, c.group, c.count),
                  kDirectAlign);
}

size_t StateStore::largest_extent(OnDisk what) const {
  size_t most = 0;
  for (int c = 0; c < int(units_.chunks.size()); ++c) {
    if (has_extent(what, c)) most = std::max(most, extent_bytes(what, c));
  }
  return most;
}

void StateStore::book(Ledger& ledger) const {
  for (Tier tier : kTiers) {
    for (State state : kAllStates) ledger.book(tier, purpose_of(state), bytes_[size_t(tier)][size_t(state)]);
  }
  for (OnDisk what : kOnDisk) ledger.book(Tier::host, Purpose::staging, largest_extent(what));
}

void StateStore::allocate(Ledger& ledger, const Allocators& allocators, const DiskOptions& disk,
                          const DiskLayout& layout) {
  for (State state : kAllStates) {
    const auto bytes = [&](Tier tier) { return bytes_[size_t(tier)][size_t(state)]; };
    device_[size_t(state)] =
        Buffer(ledger, Tier::device, purpose_of(state), bytes(Tier::device), allocators.device);
    host_[size_t(state)] = Buffer(ledger, Tier::host, purpose_of(state), bytes(Tier::host), allocators.host);
    ledger.take(Tier::disk, purpose_of(state), bytes(Tier::disk));
  }
  for (OnDisk what : kOnDisk) {
    cached_[size_t(what)].buffer = Buffer(ledger, Tier::host, Purpose::staging, largest_extent(what));
    if (!written_[size_t(what)].empty()) create_disk(what, disk, layout);
  }
}

void StateStore::register_memory(std::span<std::byte> memory) {
  if (memory.empty()) return;
  for (const auto& disk : disks_) {
    if (disk) disk->register_buffer(memory);
  }
}

// Extents are in the order of their chunks.
void StateStore::create_disk(OnDisk what, DiskOptions options, const DiskLayout& layout) {
  const bool states = what == OnDisk::states, given = states && !layout.cuts.empty();
  if (!states) options.name += "-params";
  auto disk = std::make_unique<DiskStore>(std::move(options));
  if (given) disk->reserve_head(layout.head);
  for (int c = 0; c < int(units_.chunks.size()); ++c) {
    if (!has_extent(what, c)) continue;
    const StateChunk& chunk = units_.chunks[size_t(c)];
    disk->add(extent_bytes(what, c),
              fmt::format("{} of {}, elements {} to {}", states ? "optimizer states" : "parameters",
                          units_.unit_names[size_t(units_.groups[size_t(chunk.group)].unit)], chunk.begin,
                          chunk.begin + chunk.count),
              given ? layout.cuts[size_t(c)] : std::vector<size_t>{});
  }
  disk->create();
  disks_[size_t(what)] = std::move(disk);
}

std::optional<DiskStore::Given> StateStore::give_states(const Path& folder) const {
  if (!disk(OnDisk::states).can_give(folder)) return std::nullopt;
  return disk(OnDisk::states).give();
}

void StateStore::clear(StreamRef stream) {
  for (const Buffer& buffer : device_) fill_zero_async(stream, buffer.data(), buffer.bytes());
  const Stream host({.device = {}, .name = "clear", .threads = available_cores()});
  for (const Buffer& buffer : host_) fill_zero_async(host, buffer.data(), buffer.bytes());
  stream.synchronize();
  host.synchronize();
  for (auto& written : written_) std::ranges::fill(written, char(0));
  for (Cached& cached : cached_) cached.chunk = -1;
}

std::byte* StateStore::data(State state, int group) const {
  const bool on_host = state == State::param && units_.groups[group].tier == Tier::host;
  return (on_host ? host_ : device_)[size_t(state)].data() + slot(state, group).offset;
}

std::byte* StateStore::home(State state, int chunk) const {
  const bool on_host = units_.chunks[size_t(chunk)].tier == Tier::host;
  return (on_host ? host_ : device_)[size_t(state)].data() + offsets_[size_t(state)][size_t(chunk)];
}

// All chunks of a group except the last have the same size.
int StateStore::chunk_of(int group, int64_t index) const {
  const int first = units_.first_chunk[size_t(group)];
  return first + int(index / units_.chunks[size_t(first)].count);
}

int64_t StateStore::index(State state, int group, const Partition::Piece& piece) const {
  const comm::Axes axes = slot(state, group).axes;
  return axes.empty() ? piece.full : units_.groups[size_t(group)].partition.index(rank_, axes, piece.full);
}

int64_t StateStore::count_in_chunk(int group, const Partition::Piece& piece) const {
  const Group& g = units_.groups[size_t(group)];
  const int64_t first = g.optimizer.empty() ? piece.full : g.partition.index(rank_, g.optimizer, piece.full);
  const StateChunk& chunk = units_.chunks[size_t(chunk_of(group, first))];
  return std::min(piece.count, chunk.begin + chunk.count - first);
}

std::vector<std::pair<int, Partition::Piece>> StateStore::by_chunk(State state, int group,
                                                                   const Partition::Piece& piece) const {
  std::vector<std::pair<int, Partition::Piece>> parts;
  const int64_t begin = index(state, group, piece);
  for (int64_t done = 0; done < piece.count;) {
    const int c = chunk_of(group, begin + done);
    const StateChunk& chunk = units_.chunks[size_t(c)];
    const int64_t count = std::min(piece.count - done, chunk.begin + chunk.count - (begin + done));
    parts.emplace_back(c, Partition::Piece{piece.full + done, piece.shard + done, count});
    done += count;
  }
  return parts;
}

std::vector<Partition::Piece> StateStore::disk_pieces(int group, const Partition::Piece& piece) const {
  const auto state = std::ranges::find_if(
      kOptimizerStates, [&](State s) { return in_block(s, units_.first_chunk[size_t(group)]); });
  if (!uses_disk() || state == kOptimizerStates.end()) return {piece};
  std::vector<Partition::Piece> pieces;
  bool on_disk = units_.groups[size_t(group)].tier == Tier::disk;
  for (const auto& [c, part] : by_chunk(*state, group, piece)) {
    on_disk |= units_.chunks[size_t(c)].tier == Tier::disk;
    pieces.push_back(part);
  }
  return on_disk && pieces.size() == 2 ? pieces : std::vector{piece};
}

std::byte* StateStore::at(State state, int group, const Partition::Piece& piece) const {
  const bool as_param = state == State::master && aliased(group);
  const State kept = as_param ? State::param : state;
  const int64_t first = index(kept, group, piece);
  if (kept == State::param || kept == State::grad) return data(kept, group) + bytes_of(kept, group, first);
  const int c = piece.count > 0 ? chunk_of(group, first) : units_.first_chunk[size_t(group)];
  const StateChunk& chunk = units_.chunks[size_t(c)];
  ensure(first + piece.count <= chunk.begin + chunk.count || piece.count == 0,
         "[state] a piece of {} elements at {} leaves its chunk of {} at {}", piece.count, first, chunk.count,
         chunk.begin);
  return home(kept, c) + bytes_of(kept, group, first - chunk.begin);
}

void StateStore::read_extent(OnDisk what, int chunk, std::byte* to) const {
  const size_t bytes = extent_bytes(what, chunk);
  const std::scoped_lock lock(reading_);
  if (written(what, chunk)) {
    disk(what).read(int(extent_of(what, chunk)), {to, bytes});
  } else {
    std::memset(to, 0, bytes);
  }
}

void StateStore::write_extent(OnDisk what, int chunk, const std::byte* from) const {
  disk(what).write(int(extent_of(what, chunk)), {from, extent_bytes(what, chunk)});
  written(what, chunk) = 1;
}

std::byte* StateStore::cached(OnDisk what, int chunk) {
  Cached& cached = cached_[size_t(what)];
  if (cached.chunk == chunk) return cached.buffer.data();
  flush(what);
  read_extent(what, chunk, cached.buffer.data());
  cached.chunk = chunk;
  return cached.buffer.data();
}

void StateStore::flush(OnDisk what) {
  Cached& cached = cached_[size_t(what)];
  const int chunk = std::exchange(cached.chunk, -1);
  const bool dirty = std::exchange(cached.dirty, false);
  if (chunk >= 0 && dirty) write_extent(what, chunk, cached.buffer.data());
}

void StateStore::flush() {
  for (OnDisk what : kOnDisk) flush(what);
}

std::vector<StateStore::Stretch> StateStore::stretches(State state, int group,
                                                       const Partition::Piece& piece) const {
  const State kept = state == State::master && aliased(group) ? State::param : state;
  const Tier tier = kept == State::param ? units_.groups[size_t(group)].tier : Tier::device;
  if (kept == State::grad || (kept == State::param && tier != Tier::disk))
    return {{tier, at(kept, group, piece), bytes_of(kept, group, piece.count)}};
  std::vector<Stretch> result;
  for (const auto& [c, part] : by_chunk(kept, group, piece)) {
    const StateChunk& chunk = units_.chunks[size_t(c)];
    Stretch stretch{kept == State::param ? tier : chunk.tier, nullptr, bytes_of(kept, group, part.count), c};
    if (stretch.tier == Tier::disk) {
      const int64_t within = index(kept, group, part) - chunk.begin;
      stretch.offset = bytes_of(kept, group, within) + (kept == State::param ? 0 : block_offset(kept, c));
    } else {
      stretch.data = at(kept, group, part);
    }
    result.push_back(stretch);
  }
  return result;
}

void StateStore::get(State state, int group, const Partition::Piece& piece, std::byte* out,
                     StreamRef stream) {
  if (state != State::master || !split(group)) return get_kept(state, group, piece, out, stream);
  std::vector<uint16_t> copies(static_cast<size_t>(piece.count));
  std::vector<int16_t> rests(copies.size());
  get_kept(State::param, group, piece, reinterpret_cast<std::byte*>(copies.data()), stream);
  get_kept(State::master, group, piece, reinterpret_cast<std::byte*>(rests.data()), stream);
  join_masters(copies, rests, out);
}

void StateStore::put(State state, int group, const Partition::Piece& piece, const std::byte* from,
                     StreamRef stream) {
  if (state != State::master || !split(group)) return put_kept(state, group, piece, from, stream);
  std::vector<uint16_t> copies(static_cast<size_t>(piece.count));
  std::vector<int16_t> rests(copies.size());
  split_masters(from, copies, rests);
  put_kept(State::param, group, piece, reinterpret_cast<const std::byte*>(copies.data()), stream);
  put_kept(State::master, group, piece, reinterpret_cast<const std::byte*>(rests.data()), stream);
}

void StateStore::get_kept(State state, int group, const Partition::Piece& piece, std::byte* out,
                          StreamRef stream) {
  const OnDisk what = state == State::param ? OnDisk::params : OnDisk::states;
  for (const Stretch& stretch : stretches(state, group, piece)) {
    if (stretch.tier == Tier::device) {
      copy_async(stream, out, stretch.data, stretch.bytes);
    } else {
      const bool on_disk = stretch.tier == Tier::disk;
      std::memcpy(out, on_disk ? cached(what, stretch.chunk) + stretch.offset : stretch.data, stretch.bytes);
    }
    out += stretch.bytes;
  }
  stream.synchronize();
}

void StateStore::put_kept(State state, int group, const Partition::Piece& piece, const std::byte* from,
                          StreamRef stream) {
  const OnDisk what = state == State::param ? OnDisk::params : OnDisk::states;
  const bool on_gpu = stream.device().kind == Device::Kind::cuda;
  for (const Stretch& stretch : stretches(state, group, piece)) {
    if (stretch.tier == Tier::device && on_gpu) {
      copy_async(stream, stretch.data, from, stretch.bytes);
    } else if (stretch.tier != Tier::disk) {
      std::memcpy(stretch.data, from, stretch.bytes);
    } else {
      std::memcpy(cached(what, stretch.chunk) + stretch.offset, from, stretch.bytes);
      cached_[size_t(what)].dirty = true;
    }
    from += stretch.bytes;
  }
  if (on_gpu) stream.synchronize();
}

size_t StateStore::model_state_bytes() const {
  size_t bytes = 0;
  for (const auto& tier : bytes_) {
    for (size_t state : tier) bytes += state;
  }
  return bytes;
}

}  // namespace zeno::zero
