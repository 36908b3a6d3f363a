#include "zeno/comm/mesh.h"

#include <bit>

#include "zeno/base/error.h"

namespace zeno::comm {
namespace {

constexpr std::array kOrder{Axis::pipe, Axis::outer, Axis::inner, Axis::expert, Axis::context, Axis::tensor};
static_assert(kOrder.size() == kAxes);

}  // namespace

std::string_view name_of(Axis axis) {
  constexpr std::array<std::string_view, kAxes> kNames{"pipe",   "outer",   "inner",
                                                       "expert", "context", "tensor"};
  return kNames[size_t(axis)];
}

std::string describe(Axes axes) {
  std::string text;
  for (const Axis axis : kOrder) {
    if (!axes.has(axis)) continue;
    axes = axes - Axes{axis};
    if (!text.empty()) text += axes.empty() ? " and " : ", ";
    text += name_of(axis);
  }
  return text.empty() ? "no axis" : text;
}

Mesh::Mesh(const Sizes& sizes) : sizes_(sizes) {
  for (const Axis axis : kOrder) {
    require(size(axis) >= 1, ErrorKind::usage, "[mesh] got {} ranks along {}, expected at least 1",
            size(axis), name_of(axis));
  }
}

Mesh Mesh::flat(int ranks) { return Mesh(Sizes{1, 1, ranks, 1, 1, 1}); }

Mesh Mesh::with(Axis axis, int ranks) const {
  Sizes sizes = sizes_;
  sizes[size_t(axis)] = ranks;
  return Mesh(sizes);
}

Mesh Mesh::in_groups(int ranks) const {
  const int all = size({Axis::outer, Axis::inner});
  require(
      ranks > 0 && all % ranks == 0, ErrorKind::usage,
      "[mesh] groups of ranks: got {} ranks in groups of {}, expected a number of ranks that is divisible "
      "by the group size",
      all, ranks);
  return with(Axis::outer, all / ranks).with(Axis::inner, ranks);
}

Mesh mesh_of(const MeshRequest& request) {
  const int taken = request.pipe * request.context, ranks = request.ranks / taken;
  require(request.ranks % taken == 0, ErrorKind::usage,
          "[mesh] --pipe {} --context {}: got {} ranks, expected a multiple of {}; change --ranks",
          request.pipe, request.context, request.ranks, taken);
  // Consecutive ranks of a pipeline stage on one host.
  const int near = std::min(request.ranks_per_host, request.ranks / request.pipe) / request.context;
  const bool in_two_levels = near > 1 && ranks % near == 0 && std::has_single_bit(unsigned(near));
  const int group = request.group > 0 ? request.group : in_two_levels ? near : ranks;
  return Mesh::flat(ranks)
      .in_groups(group)
      .with(Axis::pipe, request.pipe)
      .with(Axis::context, request.context);
}

int Mesh::size(Axes axes) const {
  int ranks = 1;
  for (const Axis axis : kOrder) {
    if (axes.has(axis)) ranks *= size(axis);
  }
  return ranks;
}

int Mesh::stride(Axis axis) const {
  int ranks = 1;
  for (size_t faster = size_t(axis) + 1; faster < kAxes; ++faster) ranks *= sizes_[faster];
  return ranks;
}

int Mesh::coordinate(int rank, Axis axis) const { return rank / stride(axis) % size(axis); }

int Mesh::first(int rank, Axes axes) const {
  int first = rank;
  for (const Axis axis : kOrder) {
    if (axes.has(axis)) first -= coordinate(rank, axis) * stride(axis);
  }
  return first;
}

std::vector<int> Mesh::group(int rank, Axes axes) const {
  std::vector<int> ranks{first(rank, axes)};
  for (const Axis axis : kOrder) {  // slowest first, so that the ranks ascend
    if (!axes.has(axis) || size(axis) == 1) continue;
    std::vector<int> more;
    for (const int before : ranks) {
      for (int i = 0; i < size(axis); ++i) more.push_back(before + i * stride(axis));
    }
    ranks = std::move(more);
  }
  return ranks;
}

int Mesh::place(int rank, Axes axes) const {
  int place = 0;
  for (const Axis axis : kOrder) {
    if (axes.has(axis)) place = place * size(axis) + coordinate(rank, axis);
  }
  return place;
}

Axes Mesh::needed(Axes axes) const {
  for (const Axis axis : kOrder) {
    if (size(axis) == 1) axes = axes - Axes{axis};
  }
  return axes;
}

std::string describe(const Mesh& mesh) {
  std::string text;
  for (const Axis axis : kOrder) {
    if (mesh.size(axis) == 1) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : " × ", name_of(axis), mesh.size(axis));
  }
  return text.empty() ? "1 rank" : text;
}

}  // namespace zeno::comm
