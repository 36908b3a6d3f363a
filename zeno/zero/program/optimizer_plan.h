// The optimizer step as a part of the program: which chunks of masters and moments are fetched from other
// tiers, when, and how they go back.
//
// Only the update depends on the step's gradients. So reads and fetches begin with the step and run ahead as
// far as the windows allow, and updated chunks go back while the next step computes. The update itself waits
// for the norm, so nothing has to be undone. The CPU may update some chunks in host memory while others pass
// through the GPU: then gradients go down and parameters come up, in the compute dtype, instead of states in
// both directions.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "zeno/zero/program/program_builder.h"
#include "zeno/zero/state_store.h"

namespace zeno::zero {

class OptimizerPlan {
 public:
  OptimizerPlan(const CompileInput& input, ProgramBuilder& builder);

  // Emits the reads and fetches that fit the windows.
  void bring_ahead();
  // Emits copies of gradients to the host for chunks that the CPU updates, each as soon as it is complete.
  void send_gradients();
  // Emits all updates, the remaining fetches, and the copies back.
  void update_all();

 private:
  // A chunk that was fetched and has not gone back.
  struct Brought {
    RegionId on_host = kNoRegion, on_device = kNoRegion;
  };
  Payload payload(Moved kind, int chunk) const;
  void add(Lane lane, int chunk, Action action);
  bool is_near(int chunk) const;  // in host memory, or being read into it
  void read(int chunk);           // disk to host
  void fetch(int chunk);          // host to device
  void update(int chunk);
  void update_by_cpu(int chunk);
  void send_back_states(int chunk);
  void send_back_params(int chunk, RegionId made);

  const CompileInput& input_;
  ProgramBuilder& builder_;
  StateStore layout_;                 // used only for sizes
  std::vector<int> order_;            // of updates
  std::vector<int> reads_, fetches_;  // chunks to move, in that order
  size_t next_read_ = 0, next_fetch_ = 0;
  std::vector<Brought> brought_;  // by chunk
  // Parameters that the CPU made last, on their way to the device. In regions of their own, so that the CPU
  // need not wait while the link is busy with states.
  static constexpr size_t kPublishing = 8;
  std::deque<RegionId> publishing_;
  std::vector<RegionId> sent_;                 // by chunk: gradients on the host
  int live_on_device_ = 0, live_on_host_ = 0;  // chunks fetched and not yet sent back
  int64_t on_device_ = 0, on_host_ = 0;        // their elements
};

}  // namespace zeno::zero
