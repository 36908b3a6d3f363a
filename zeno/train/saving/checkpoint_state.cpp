#include "zeno/train/saving/checkpoint_state.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "zeno/base/error.h"

namespace zeno::train {
namespace {

using zero::State;

constexpr std::array<std::pair<State, std::string_view>, 3> kSaved{{
    {State::master, "master"},
    {State::first_moment, "first_moment"},
    {State::second_moment, "second_moment"},
}};

std::vector<std::pair<State, std::string_view>> states_of(const zero::Engine& engine) {
  std::vector<std::pair<State, std::string_view>> found;
  const zero::Policy& policy = engine.policy();
  for (const auto& entry : kSaved) {
    if (entry.first == State::first_moment && !policy.moments_first) continue;
    if (entry.first == State::second_moment && !policy.moments_second) continue;
    found.push_back(entry);
  }
  return found;
}

// These errors are Error(usage): the checkpoint is intact, and an older one would not help.
void check_tensors(const checkpoint::Checkpoint& from, const zero::Engine& engine) {
  constexpr std::string_view kAdvice =
      "it is of another model, or other parts of it were trained; use the same, or another --out";
  const std::string folder = from.folder().string();
  const std::vector<checkpoint::StateTensor> expected = saved_tensors(engine);
  for (const checkpoint::StateTensor& tensor : expected) {
    const checkpoint::StateTensor* found = from.find(tensor.name);
    require(found != nullptr, ErrorKind::usage, "[checkpoint] {}: there is no tensor {}; {}", folder,
            tensor.name, kAdvice);
    require(*found == tensor, ErrorKind::usage, "[checkpoint] {}: {} is {} x {}, expected {} x {}; {}",
            folder, tensor.name, found->rows, found->cols, tensor.rows, tensor.cols, kAdvice);
  }
  require(from.manifest().tensors.size() == expected.size(), ErrorKind::usage,
          "[checkpoint] {}: got {} trained tensors, expected {}; {}", folder, from.manifest().tensors.size(),
          expected.size(), kAdvice);
}

}  // namespace

std::vector<checkpoint::StateKind> saved_states(const zero::Engine& engine) {
  std::vector<checkpoint::StateKind> kinds;
  for (const auto& [state, name] : states_of(engine))
    kinds.push_back({std::string(name), engine.store().value_dtype(state)});
  return kinds;
}

std::vector<checkpoint::StateTensor> saved_tensors(const zero::Engine& engine) {
  std::vector<checkpoint::StateTensor> tensors;
  for (const nn::Parameter& param : engine.units().params) {
    if (param.trainable) tensors.push_back({param.name, param.rows, param.cols});
  }
  return tensors;
}

std::vector<checkpoint::Extent> saved_extents(const zero::Engine& engine) {
  std::map<State, int> state_index;
  for (const auto& [state, name] : states_of(engine)) state_index.emplace(state, int(state_index.size()));
  std::vector<int> tensor_index;
  int next = 0;
  for (const nn::Parameter& param : engine.units().params)
    tensor_index.push_back(param.trainable ? next++ : -1);
  std::vector<checkpoint::Extent> extents;
  for (const zero::Snapshot::Piece& piece : engine.snapshot().pieces()) {
    extents.push_back({.state = state_index.at(piece.state),
                       .tensor = tensor_index[size_t(piece.param)],
                       .begin = piece.begin,
                       .count = piece.count});
  }
  return extents;
}

void restore(const checkpoint::Checkpoint& from, zero::Engine& engine) {
  check_tensors(from, engine);
  std::map<State, std::string_view> names;
  for (const auto& [state, name] : states_of(engine)) {
    require(from.has(name), ErrorKind::usage,
            "[checkpoint] {}: there is no {}; it was trained with another optimizer; use that optimizer",
            from.folder().string(), name);
    names.emplace(state, name);
  }
  for (const checkpoint::StateKind& kind : from.manifest().states) {
    require(std::ranges::any_of(names, [&](const auto& own) { return own.second == kind.name; }),
            ErrorKind::usage,
            "[checkpoint] {}: this run has no {}; the checkpoint was trained with another optimizer; use "
            "that optimizer",
            from.folder().string(), kind.name);
  }
  engine.load_states([&](const zero::Engine::Loading& loading) {
    std::vector<checkpoint::StateStretch> wanted;
    for (const zero::Engine::StateRun& run : loading.runs) {
      wanted.push_back(
          {names.at(run.state), engine.units().params[size_t(run.param)].name, run.begin, run.count});
    }
    const auto place = [&](size_t i, int64_t begin, DType dtype, std::span<std::byte> values) {
      loading.place(loading.runs[i], begin, {dtype, values});
    };
    const int threads = std::min(checkpoint::reading_threads(loading.cores), loading.in_order ? 8 : 16);
    from.read(wanted, place, {.threads = threads, .in_order = loading.in_order});
  });
}

}  // namespace zeno::train
