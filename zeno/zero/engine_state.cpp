// Reading, writing and hashing the state of an engine, whatever its sharding.
#include <algorithm>
#include <bit>
#include <cstring>

#include "zeno/base/error.h"
#include "zeno/base/rng.h"
#include "zeno/device/copy.h"
#include "zeno/zero/engine.h"

namespace zeno::zero {
namespace {

void to_floats(const std::byte* from, DType dtype, std::span<float> out) {
  dispatch_float(dtype, [&]<class T>() {
    const T* values = reinterpret_cast<const T*>(from);
    for (size_t i = 0; i < out.size(); ++i) out[i] = float(values[i]);
  });
}

void from_floats(std::span<const float> values, DType dtype, std::byte* to) {
  dispatch_float(dtype, [&]<class T>() {
    T* out = reinterpret_cast<T*>(to);
    for (size_t i = 0; i < values.size(); ++i) out[i] = T(values[i]);
  });
}

// Hash of up to kFlatAlign floats at a given place in the table: the place is part of it, so that sums of
// block hashes do not depend on who hashed what.
uint64_t block_hash(int param, int64_t block, std::span<const float> values) {
  uint64_t h = mix64(mix64(uint64_t(param)) ^ uint64_t(block));
  for (float value : values) h = mix64(h ^ std::bit_cast<uint32_t>(value));
  return h;
}

}  // namespace

std::vector<Engine::Run> Engine::runs(State state, int param, int64_t begin, int64_t end, int rank) const {
  const ParamPlace place = units_.places[param];
  const Group& group = units_.groups[place.group];
  const int64_t offset = group.layout.tensors()[place.tensor].offset;
  std::vector<Run> result;
  const auto add = [&](const Partition::Piece& piece) {
    constexpr int64_t kMost =
        1 << 20;  // elements; a multiple of kFlatAlign, so that hashed blocks stay whole
    for (int64_t done = 0; done < piece.count; done += kMost) {
      const int64_t count = std::min(kMost, piece.count - done);
      result.push_back({piece.full + done - offset, count, {piece.full + done, piece.shard + done, count}});
    }
  };
  if (store_.whole(state, place.group) && policy_.optimizer == Placement::replicated) {
    add({offset + begin, offset + begin, end - begin});
    return result;
  }
  for (const Partition::Piece& piece : group.partition.pieces(rank, offset + begin, offset + end)) add(piece);
  return result;
}

std::vector<float> Engine::fetch(State state, int group, const Run& run) const {
  const DType dtype = store_.dtype(state);
  std::vector<std::byte> bytes(size_t(run.count) * size_of(dtype));
  copy_async(executor_->compute(), bytes.data(), store_.at(state, group, run.piece), bytes.size());
  executor_->compute().synchronize();
  std::vector<float> values(static_cast<size_t>(run.count));
  to_floats(bytes.data(), dtype, values);
  return values;
}

void Engine::put(State state, int group, const Partition::Piece& piece, std::span<const float> values) {
  const DType dtype = store_.dtype(state);
  std::vector<std::byte> bytes(values.size() * size_of(dtype));
  from_floats(values, dtype, bytes.data());
  copy_async(executor_->compute(), store_.at(state, group, piece), bytes.data(), bytes.size());
  executor_->compute().synchronize();
}

void Engine::load(const ValueReader& read) {
  std::vector<float> staging;
  for (int p = 0; p < int(units_.params.size()); ++p) {
    const nn::Parameter& param = units_.params[p];
    const int g = units_.places[p].group;
    // Frozen parameters kept whole are never gathered: every rank reads all pieces itself.
    const bool all =
        !param.trainable && store_.whole(State::param, g) && policy_.optimizer == Placement::sharded;
    for (int rank = all ? 0 : world_.rank(); rank < (all ? world_.size() : world_.rank() + 1); ++rank) {
      for (const Run& run : runs(State::param, p, 0, param.count(), rank)) {
        staging.resize(size_t(run.count));
        read(param, run.begin, staging);
        if (param.trainable && policy_.compute != policy_.states) put(State::master, g, run.piece, staging);
        put(State::param, g, run.piece, staging);
      }
    }
  }
}

void Engine::read(State state, int param, int64_t begin, std::span<float> out) {
  const int64_t end = begin + int64_t(out.size());
  const int g = units_.places[param].group;
  const bool frozen = !units_.params[param].trainable;
  const State kept = frozen && state == State::master ? State::param : state;
  std::string mine;
  for (const Run& run : runs(kept, param, begin, end, world_.rank())) {
    const std::vector<float> values = fetch(kept, g, run);
    mine.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  const std::vector<std::string> all = world_.exchange(mine);
  for (int rank = 0; rank < world_.size(); ++rank) {
    const char* from = all[size_t(rank)].data();
    for (const Run& run : runs(kept, param, begin, end, rank)) {
      std::memcpy(&out[size_t(run.begin - begin)], from, size_t(run.count) * sizeof(float));
      from += size_t(run.count) * sizeof(float);
    }
  }
}

void Engine::write(State state, int param, int64_t begin, std::span<const float> values) {
  const int64_t end = begin + int64_t(values.size());
  const int g = units_.places[param].group;
  ensure(store_.exists(state, g), "[engine] {} has no such state", units_.params[param].name);
  for (const Run& run : runs(state, param, begin, end, world_.rank())) {
    put(state, g, run.piece, values.subspan(size_t(run.begin - begin), size_t(run.count)));
  }
  if (state == State::master) refresh_params(param, begin, end);
}

void Engine::load_state(State state, const ValueReader& read) {
  std::vector<float> staging;
  for (int p = 0; p < int(units_.params.size()); ++p) {
    const int g = units_.places[p].group;
    if (!units_.params[p].trainable || !store_.exists(state, g)) continue;
    for (const Run& run : runs(state, p, 0, units_.params[p].count(), world_.rank())) {
      staging.resize(size_t(run.count));
      read(units_.params[p], run.begin, staging);
      put(state, g, run.piece, staging);
      if (state == State::master) put(State::param, g, run.piece, staging);
    }
  }
}

void Engine::take_snapshot() {
  ensure(snapshot_.has_value(), "[engine] there is no room for a snapshot");
  snapshot_begin_.record(executor_->compute());
  snapshot_stream_->ref().wait(snapshot_begin_);
  snapshot_->copy(*snapshot_stream_);
  snapshot_taken_.record(*snapshot_stream_);
  executor_->hold_updates(snapshot_taken_);
}

void Engine::refresh_params(int param, int64_t begin, int64_t end) {
  const int g = units_.places[param].group;
  for (const Run& run : runs(State::master, param, begin, end, world_.rank())) {
    put(State::param, g, run.piece, fetch(State::master, g, run));
  }
}

uint64_t Engine::weights_hash() {
  uint64_t sum = 0;
  for (int p = 0; p < int(units_.params.size()); ++p) {
    const int g = units_.places[p].group;
    const State state = units_.params[p].trainable ? State::master : State::param;
    const bool everywhere = policy_.optimizer == Placement::replicated;
    if (everywhere && world_.rank() > 0) continue;  // the same on all ranks: counted once
    for (const Run& run : runs(state, p, 0, units_.params[p].count(), world_.rank())) {
      const std::vector<float> values = fetch(state, g, run);
      for (int64_t i = 0; i < run.count; i += kFlatAlign) {
        const int64_t count = std::min(kFlatAlign, run.count - i);
        sum +=
            block_hash(p, (run.begin + i) / kFlatAlign, std::span(values).subspan(size_t(i), size_t(count)));
      }
    }
  }
  uint64_t total = 0;
  for (const std::string& bytes : world_.exchange({reinterpret_cast<const char*>(&sum), sizeof(sum)})) {
    uint64_t theirs;
    std::memcpy(&theirs, bytes.data(), sizeof(theirs));
    total += theirs;
  }
  return total;
}

}  // namespace zeno::zero
