// The gradient side of the compiler: where each step's gradients are added, when a buffer is cleared, how
// micro-batches are summed, and when complete gradients are reduced.
//
// A window is a part of the schedule at whose end a group's gradient buffer is complete and reduced: the
// whole step, or one micro-batch when gradients are sharded in horizontal order. In reproducible runs each
// layer that adds to a group has its own window, and its micro-batches are summed as a binary tree.
//
// On a mesh of several hosts a reduction goes over the shard axes first, then over `outer`: every byte leaves
// a host once, and with a power of two of ranks along the shard axes the sums have the bits of one reduction
// over all ranks. Gradients that are not sharded over `outer` are reduced over it once per step, when their
// last window is complete.
//
// Where gradients are coded (ZeRO++), each level that ends in shards exchanges cells: a value is rounded once
// per level, summed in fp32, and the sums of the first level are rounded again for the second.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "zeno/zero/program/program_builder.h"
#include "zeno/zero/program/schedule.h"

namespace zeno::zero {

class GradientPlan {
 public:
  GradientPlan(const CompileInput& input, const std::vector<ComputeStep>& steps, ProgramBuilder& builder);

  // Where step `s` adds the gradients of each trainable group it touches. Emits the clearing that must come
  // first.
  GradBindings bind(int s);
  // Emits the sums and reductions that are possible after step `s`.
  void after(int s);
  // Reduces what is left in a bucket that is not full.
  void flush();

 private:
  using Window = std::pair<int, int>;  // group, index of the window
  struct Pending {
    Reduce::Summand summand;
    bool last = false;  // this is the last window of the group
  };

  std::vector<int> grad_groups(const ComputeStep& step) const;
  Window window_of(int group, const ComputeStep& step) const;
  bool in_region(const Group& group) const;
  Lane reduce_lane() const { return input_.policy.overlap ? Lane::reduce : Lane::compute; }
  RegionId cleared_region(int group);
  bool written_whole(const ComputeStep& step) const;
  void add(int unit, Action action, Lane lane = Lane::compute);
  void clear(Binding grads);
  void add_leaf(Window window);
  void complete(Window window, RegionId region);
  void enqueue(int group, RegionId region, bool accumulate);
  void deposit(int group, RegionId region);
  void reduce(Reduce reduce);
  void reduce_in_two_levels(const std::vector<Pending>& bucket, int64_t elements);
  void prepare_wire(Reduce& reduce, int64_t elements);

  const CompileInput& input_;
  const std::vector<ComputeStep>& steps_;
  ProgramBuilder& builder_;
  std::map<Window, int> last_touch_;   // last step of each window
  std::map<Window, RegionId> buffer_;  // of open windows (running sum, or current leaf)
  std::map<Window, std::vector<std::pair<int, RegionId>>>
      levels_;                            // reproducible: binary counter of partial sums
  std::vector<int> windows_, completed_;  // by group: all windows, and complete ones
  std::vector<bool> storage_cleared_;
  std::vector<Pending> bucket_;  // not yet sent
  int64_t bucket_elements_ = 0;
  std::vector<RegionId> draining_;  // of the last reduction
};

}  // namespace zeno::zero
