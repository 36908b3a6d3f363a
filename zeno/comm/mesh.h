// The ranks of a job as a mesh of named axes. Every group of ranks that communicates is given by a set of
// axes: the ranks whose coordinates differ only along these axes. Pure arithmetic.
//
// Ranks are numbered along the axes in the order of Axis, the last one fastest, so that neighbouring ranks,
// which share a host, differ in the axes that communicate most.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace zeno::comm {

enum class Axis : uint8_t {
  pipe,     // different layers
  outer,    // copies of the same shards: hosts, islands
  inner,    // shards of one copy, apart from those along `expert`
  expert,   // shards of one copy that hold different experts
  context,  // different tokens of the same sequences
  tensor,   // parts of the same matrices
};
inline constexpr int kAxes = int(Axis::tensor) + 1;
std::string_view name_of(Axis axis);

// A set of axes.
class Axes {
 public:
  constexpr Axes() = default;
  constexpr Axes(std::initializer_list<Axis> axes) {
    for (const Axis axis : axes) bits_ |= bit(axis);
  }

  constexpr bool has(Axis axis) const { return (bits_ & bit(axis)) != 0; }
  constexpr bool has(Axes others) const { return (bits_ & others.bits_) == others.bits_; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr Axes operator|(Axes other) const { return Axes(bits_ | other.bits_); }
  constexpr Axes operator&(Axes other) const { return Axes(bits_ & other.bits_); }
  constexpr Axes operator-(Axes other) const { return Axes(bits_ & ~other.bits_); }
  constexpr auto operator<=>(const Axes&) const = default;
  // As a number, so that it can be sent to other ranks.
  constexpr unsigned bits() const { return bits_; }
  static constexpr Axes of_bits(unsigned bits) { return Axes(bits); }

 private:
  static constexpr unsigned bit(Axis axis) { return 1u << unsigned(axis); }
  explicit constexpr Axes(unsigned bits) : bits_(bits) {}

  unsigned bits_ = 0;
};

// The shards of one copy of the model states.
inline constexpr Axes kShardAxes{Axis::inner, Axis::expert, Axis::context};
// Ranks that differ along these have the same weights and see different data.
inline constexpr Axes kDataAxes = kShardAxes | Axes{Axis::outer};
// Those along which sequences differ; `context` splits each sequence.
inline constexpr Axes kBatchAxes = kDataAxes - Axes{Axis::context};

inline constexpr Axes kAllAxes = kDataAxes | Axes{Axis::pipe, Axis::tensor};

// "outer and inner"
std::string describe(Axes axes);

class Mesh {
 public:
  using Sizes = std::array<int, kAxes>;  // ranks along each axis, at least 1

  Mesh() : Mesh(Sizes{1, 1, 1, 1, 1, 1}) {}
  explicit Mesh(const Sizes& sizes);
  // All ranks along `inner`: plain data parallelism.
  static Mesh flat(int ranks);
  // The same mesh with another number of ranks along an axis.
  Mesh with(Axis axis, int ranks) const;
  // The same ranks, with `ranks` of those along `outer` and `inner` in each row along `inner`. Error(usage)
  // when that does not divide them.
  Mesh in_groups(int ranks) const;

  int ranks() const { return size(kAllAxes); }
  // Ranks that have the same weights and see different tokens.
  int data_ranks() const { return size(kDataAxes); }
  // Ranks that see different sequences: each batch is divided among them.
  int batch_ranks() const { return size(kBatchAxes); }
  int size(Axis axis) const { return sizes_[size_t(axis)]; }
  // Ranks in a group along these axes.
  int size(Axes axes) const;

  // The position of a rank along an axis.
  int coordinate(int rank, Axis axis) const;
  // The first rank of the group of `rank`, and all its ranks, ascending.
  int first(int rank, Axes axes) const;
  std::vector<int> group(int rank, Axes axes) const;
  // The index of `rank` in its group.
  int place(int rank, Axes axes) const;
  // The axes of the set that have more than one rank. Groups along these are the groups along the whole set.
  Axes needed(Axes axes) const;

  bool operator==(const Mesh&) const = default;

 private:
  int stride(Axis axis) const;

  Sizes sizes_{};
};

// What mesh_of() makes a mesh from.
struct MeshRequest {
  int ranks = 1;
  int ranks_per_host = 0;  // see World::ranks_per_host
  // Ranks in a row along `inner`, which together hold one copy of what is sharded in groups. 0: the ranks of
  // a host if sums then keep the bits of sums over all ranks, otherwise all.
  int group = 0;
  int pipe = 1, context = 1;  // ranks along these axes
};
// If every host has the same power of two of ranks, hosts are placed along `outer`, so that sums and gathers
// have two levels: within hosts, and across them. Error(usage) when the requested groups do not divide the
// ranks.
Mesh mesh_of(const MeshRequest& request);

// "outer 2 × inner 4"; axes of one rank are left out, "1 rank" when all are.
std::string describe(const Mesh& mesh);

}  // namespace zeno::comm
