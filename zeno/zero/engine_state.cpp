// Reading, writing and hashing the state of an engine, whatever its sharding.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <future>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/host.h"
#include "zeno/base/rng.h"
#include "zeno/device/device.h"
#include "zeno/kernels/master_rest.h"
#include "zeno/kernels/moment_cells.h"
#include "zeno/kernels/nf4.h"
#include "zeno/zero/engine.h"

namespace zeno::zero {
namespace {

// `from` may be unaligned.
void to_floats(const std::byte* from, DType dtype, std::span<float> out) {
  dispatch_float(dtype, [&]<class T>() {
    for (size_t i = 0; i < out.size(); ++i) {
      T value;
      std::memcpy(&value, from + i * sizeof(T), sizeof(T));
      out[i] = float(value);
    }
  });
}

// Converts floats to 16-bit values in place, at the beginning of their memory.
void narrow(StoredValues& values, DType dtype) {
  constexpr size_t kAtOnce = 1024;
  const size_t total = size_t(values.count());
  dispatch_float(dtype, [&]<class T>() {
    std::array<float, kAtOnce> wide;
    std::array<T, kAtOnce> narrow;
    for (size_t at = 0; at < total; at += kAtOnce) {
      const size_t count = std::min(kAtOnce, total - at);
      std::memcpy(wide.data(), &values.bytes[at * sizeof(float)], count * sizeof(float));
      for (size_t i = 0; i < count; ++i) narrow[i] = copy_of_master<T>(wide[i]);
      std::memcpy(&values.bytes[at * sizeof(T)], narrow.data(), count * sizeof(T));
    }
    values = {dtype, values.bytes.first(total * sizeof(T))};
  });
}

// Trained parameters are copies of masters; frozen ones are rounded as PyTorch rounds.
void from_floats(std::span<const float> values, bool trained, DType dtype, std::byte* to) {
  dispatch_float(dtype, [&]<class T>() {
    T* out = reinterpret_cast<T*>(to);
    for (size_t i = 0; i < values.size(); ++i) out[i] = trained ? copy_of_master<T>(values[i]) : T(values[i]);
  });
}

StateRole role_of(State state) { return state == State::first_moment ? StateRole::m : StateRole::v; }

// NF4 has no code for values that are not finite, and one such value would ruin its block.
void require_finite(const nn::Parameter& param, int64_t begin, std::span<const float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    require(std::isfinite(values[i]), ErrorKind::data,
            "[engine] {} element {}: got {}, expected a finite weight; --quantize-base nf4 cannot keep it",
            param.name, begin + int64_t(i), values[i]);
  }
}

// Hash of up to kFlatAlign floats at a given place in the table: the place is part of the hash, so that sums
// of block hashes do not depend on the sharding.
uint64_t block_hash(int param, int64_t block, std::span<const float> values) {
  uint64_t h = mix64(mix64(uint64_t(param)) ^ uint64_t(block));
  for (float value : values) h = mix64(h ^ std::bit_cast<uint32_t>(value));
  return h;
}

}  // namespace

std::vector<Engine::Run> Engine::runs(int param, int64_t begin, int64_t end, int rank,
                                      comm::Axes axes) const {
  const ParamPlace place = units_.places[param];
  const Group& group = units_.groups[place.group];
  const int64_t offset = group.layout.tensors()[place.tensor].offset;
  std::vector<Run> result;
  const auto add = [&](const Partition::Piece& piece) {
    // Elements; a multiple of kFlatAlign and kNf4Cell, so that hashed blocks and cells stay whole. Runs end
    // where extents of checkpoints do, so that none is read twice.
    constexpr int64_t kMost = 1 << 20;
    for (int64_t done = 0; done < piece.count;) {
      const int64_t first = piece.full + done - offset;
      const int64_t count = std::min(kMost - first % kMost, piece.count - done);
      result.push_back({first, count, {piece.full + done, piece.shard + done, count}});
      done += count;
    }
  };
  if (axes.empty()) {
    add({offset + begin, offset + begin, end - begin});
    return result;
  }
  for (const Partition::Piece& piece : group.partition.pieces(rank, axes, offset + begin, offset + end))
    add(piece);
  return result;
}

// Trained parameters are up to date on the ranks that have their optimizer states; the step's gathers bring
// them to the others.
std::vector<Engine::Run> Engine::written_runs(int param, int64_t begin, int64_t end) const {
  const Group& group = units_.groups[size_t(units_.places[size_t(param)].group)];
  if (!group.here) return {};
  return runs(param, begin, end, world_.rank(), group.trainable ? group.optimizer : group.params);
}

// Every rank has different runs, even if all ranks keep everything.
std::vector<Engine::Run> Engine::saved_runs(int param, int64_t begin, int64_t end, int rank) const {
  if (!saved_by(rank, units_.places[size_t(param)].group)) return {};
  return runs(param, begin, end, rank, comm::kDataAxes);
}

// The decoded values, in the dtype that layers see. The run may start within a cell.
std::vector<float> Engine::fetch_nf4(int group, const Run& run) {
  const int64_t skip = run.piece.full % kNf4Cell;
  const Partition::Piece piece{run.piece.full - skip, run.piece.shard - skip, run.count + skip};
  std::vector<Nf4Cell> cells(size_t(nf4_cells(piece.count)));
  store_.get(State::param, group, piece, reinterpret_cast<std::byte*>(cells.data()), executor_->compute());
  std::vector<float> values(static_cast<size_t>(piece.count));
  nf4_decode_on_host(cells.data(), values);
  values.erase(values.begin(), values.begin() + skip);
  dispatch_float(policy_.compute, [&]<class T>() {
    for (float& value : values) value = float(T(value));
  });
  return values;
}

std::vector<float> Engine::fetch(State state, int group, const Run& run) {
  if (state == State::param && units_.groups[group].nf4) return fetch_nf4(group, run);
  const DType dtype = store_.dtype(state);
  std::vector<std::byte> bytes(dtype == DType::u8 ? moment_bytes(run.count)
                                                  : size_t(run.count) * size_of(dtype));
  store_.get(state, group, run.piece, bytes.data(), executor_->compute());
  std::vector<float> values(static_cast<size_t>(run.count));
  if (dtype == DType::u8) {
    decode_moments(reinterpret_cast<const MomentCell*>(bytes.data()), role_of(state), values);
  } else {
    to_floats(bytes.data(), dtype, values);
  }
  return values;
}

void Engine::put(State state, int group, const Partition::Piece& piece, std::span<const float> values) {
  const DType dtype = store_.dtype(state);
  std::vector<std::byte> coded;
  std::span<const std::byte> bytes = std::as_bytes(values);
  if (state == State::param && units_.groups[group].nf4) {
    ensure(piece.full % kNf4Cell == 0, "[engine] a write begins within a cell, at element {}", piece.full);
    coded.resize(nf4_bytes(piece.count));
    nf4_quantise(values, reinterpret_cast<Nf4Cell*>(coded.data()));
    bytes = coded;
  } else if (dtype == DType::u8) {
    coded.resize(moment_bytes(piece.count));
    encode_moments(values, role_of(state), reinterpret_cast<MomentCell*>(coded.data()));
    bytes = coded;
  } else if (dtype != DType::f32) {
    coded.resize(values.size() * size_of(dtype));
    from_floats(values, units_.groups[size_t(group)].trainable, dtype, coded.data());
    bytes = coded;
  }
  store_.put(state, group, piece, bytes.data(), executor_->compute());
}

// Reads the next runs while one is being written.
template <class Put>
void Engine::read_ahead(const std::vector<std::pair<int, Run>>& all, const ValueReader& read,
                        const Put& put) {
  const size_t ahead = std::clamp<size_t>(size_t(available_cores()), 4, 16);
  std::vector<std::vector<float>> staging(ahead + 1);
  std::deque<std::future<void>> reads;
  const auto read_run = [&](size_t i) {
    const auto& [param, run] = all[i];
    staging[i % staging.size()].resize(size_t(run.count));
    read(units_.params[size_t(param)], run.begin, staging[i % staging.size()]);
  };
  for (size_t i = 0, next = 0; i < all.size(); ++i) {
    for (; next < all.size() && next <= i + ahead; ++next)
      reads.push_back(std::async(std::launch::async, read_run, next));
    reads.front().get();
    reads.pop_front();
    put(all[i].first, all[i].second, staging[i % staging.size()]);
  }
}

void Engine::load(const ValueReader& read) {
  executor_->settle();
  std::vector<std::pair<int, Run>> all;
  for (int p = 0; p < int(units_.params.size()); ++p) {
    for (const Run& run : written_runs(p, 0, units_.params[size_t(p)].count())) all.emplace_back(p, run);
  }
  read_ahead(all, read, [&](int p, const Run& run, std::span<const float> values) {
    const nn::Parameter& param = units_.params[size_t(p)];
    const int g = units_.places[size_t(p)].group;
    if (units_.groups[size_t(g)].nf4) require_finite(param, run.begin, values);
    if (param.trainable && !store_.aliased(g)) put(State::master, g, run.piece, values);
    if (!store_.split(g)) put(State::param, g, run.piece, values);
  });
}

void Engine::read(State state, int param, int64_t begin, std::span<float> out) {
  executor_->settle();
  const int64_t end = begin + int64_t(out.size());
  const int g = units_.places[param].group;
  const bool frozen = !units_.params[param].trainable;
  const State kept = frozen && state == State::master ? State::param : state;
  std::string mine;
  for (const Run& run : saved_runs(param, begin, end, world_.rank())) {
    const std::vector<float> values = fetch(kept, g, run);
    mine.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  const std::vector<std::string> all = world_.exchange(mine, "weights to save");
  for (int rank = 0; rank < world_.size(); ++rank) {
    const char* from = all[size_t(rank)].data();
    for (const Run& run : saved_runs(param, begin, end, rank)) {
      std::memcpy(&out[size_t(run.begin - begin)], from, size_t(run.count) * sizeof(float));
      from += size_t(run.count) * sizeof(float);
    }
  }
}

void Engine::write(State state, int param, int64_t begin, std::span<const float> values) {
  executor_->settle();
  const int64_t end = begin + int64_t(values.size());
  const int g = units_.places[param].group;
  if (!units_.groups[size_t(g)].here) return;
  ensure(store_.exists(state, g), "[engine] {} has no such state", units_.params[param].name);
  ensure(state != State::param || !store_.split(g), "[engine] {} is written as its masters",
         units_.params[param].name);
  for (const Run& run : written_runs(param, begin, end)) {
    put(state, g, run.piece, values.subspan(size_t(run.begin - begin), size_t(run.count)));
  }
  if (state == State::master) refresh_params(param, begin, end);
}

std::vector<Engine::StateRun> Engine::state_runs() const {
  std::vector<StateRun> result;
  for (int p = 0; p < int(units_.params.size()); ++p) {
    const int group = units_.places[size_t(p)].group;
    if (!units_.params[size_t(p)].trainable) continue;
    for (const Run& run : written_runs(p, 0, units_.params[size_t(p)].count())) {
      for (const Partition::Piece& piece : store_.disk_pieces(group, run.piece)) {
        const int64_t begin = run.begin + piece.full - run.piece.full;
        for (State state : kOptimizerStates) {
          if (store_.exists(state, group)) result.push_back({state, p, begin, piece.count, piece});
        }
      }
    }
  }
  return result;
}

void Engine::load_states(const std::function<void(const Loading&)>& read) {
  executor_->settle();
  read({state_runs(),
        [this](const StateRun& run, int64_t begin, StoredValues values) { place(run, begin, values); },
        store_.uses_disk(), share_of_cores(world_.local_size())});
}

void Engine::place(const StateRun& run, int64_t begin, StoredValues values) {
  const int group = units_.places[size_t(run.param)].group;
  const int64_t skip = begin - run.begin;
  const Partition::Piece piece{run.piece.full + skip, run.piece.shard + skip, values.count()};
  require(store_.dtype(run.state) != DType::u8 || piece.full % kMomentCell == 0, ErrorKind::data,
          "[engine] {}: got moments from element {} on, expected a multiple of {}; load them without "
          "8-bit moments",
          units_.params[size_t(run.param)].name, begin, kMomentCell);
  put(run.state, group, piece, values);
  if (run.state == State::master && !store_.aliased(group) && !store_.split(group))
    put(State::param, group, piece, values);
}

// The common cases need no additional memory.
void Engine::put(State state, int group, const Partition::Piece& piece, StoredValues& values) {
  const DType kept = store_.dtype(state);
  if (kept != values.dtype && values.dtype == DType::f32 && is_float(kept)) narrow(values, kept);
  if (kept == values.dtype) return store_.put(state, group, piece, values.bytes.data(), executor_->compute());
  std::vector<float> floats(size_t(piece.count));
  to_floats(values.bytes.data(), values.dtype, floats);
  put(state, group, piece, floats);
}

void Engine::take_snapshot() {
  ensure(snapshot_.has_value(), "[engine] there is no room for a snapshot");
  store_.flush();  // values that were loaded or written since the last step
  executor_->settle_on(*snapshot_stream_);
  snapshot_->copy(*snapshot_stream_);
  snapshot_taken_.record(*snapshot_stream_);
  executor_->hold_updates(snapshot_taken_, [this] { snapshot_->await_release(); });
}

void Engine::refresh_params(int param, int64_t begin, int64_t end) {
  const int g = units_.places[param].group;
  if (store_.split(g)) return;
  for (const Run& run : written_runs(param, begin, end)) {
    put(State::param, g, run.piece, fetch(State::master, g, run));
  }
}

uint64_t Engine::weights_hash() {
  executor_->settle();
  uint64_t sum = 0;
  for (int p = 0; p < int(units_.params.size()); ++p) {
    const int g = units_.places[p].group;
    const State state = units_.params[p].trainable ? State::master : State::param;
    for (const Run& run : saved_runs(p, 0, units_.params[p].count(), world_.rank())) {
      const std::vector<float> values = fetch(state, g, run);
      for (int64_t i = 0; i < run.count; i += kFlatAlign) {
        const int64_t count = std::min(kFlatAlign, run.count - i);
        sum +=
            block_hash(p, (run.begin + i) / kFlatAlign, std::span(values).subspan(size_t(i), size_t(count)));
      }
    }
  }
  uint64_t total = 0;
  for (const std::string& bytes :
       world_.exchange({reinterpret_cast<const char*>(&sum), sizeof(sum)}, "weights hash")) {
    uint64_t theirs;
    std::memcpy(&theirs, bytes.data(), sizeof(theirs));
    total += theirs;
  }
  return total;
}

}  // namespace zeno::zero
