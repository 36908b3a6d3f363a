// The optimizer step as a part of the program: which chunks of masters and moments are brought from other
// tiers, when, and how they go back.
//
// Bringing a chunk does not depend on the step's gradients, only the update does: so reads and fetches begin
// with the step and run ahead of it as far as the windows allow, and what has been updated goes back while
// the next step computes. Nothing is done twice or guessed: the update itself waits for the norm. A part may
// be updated by the CPU where it is kept, beside what passes through the GPU: gradients go down and
// parameters come up, in the compute type, instead of states in both directions.
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
  // Emits the way of gradients to the CPU, where it updates: each chunk's as soon as it is complete.
  void send_gradients();
  // Emits all updates, what is left to bring, and the way back.
  void update_all();

 private:
  // A chunk that was brought and has not left.
  struct Brought {
    RegionId on_host = kNoRegion, on_device = kNoRegion;
  };
  Payload payload(Moved kind, int chunk) const;
  void add(Lane lane, int chunk, Action action);
  bool is_near(int chunk) const;  // on the host, or on its way there
  void read(int chunk);           // disk to host
  void fetch(int chunk);          // host to device
  void update(int chunk);
  void update_by_cpu(int chunk);
  void send_back_states(int chunk);
  void send_back_params(int chunk, RegionId made);

  const CompileInput& input_;
  ProgramBuilder& builder_;
  StateStore layout_;                 // only asked for sizes
  std::vector<int> order_;            // of updates
  std::vector<int> reads_, fetches_;  // chunks to bring, in that order
  size_t next_read_ = 0, next_fetch_ = 0;
  std::vector<Brought> brought_;  // by chunk
  // What the CPU made last, on its way up: kept apart, so that it goes on while the link is busy with states.
  static constexpr size_t kPublishing = 8;
  std::deque<RegionId> publishing_;
  std::vector<RegionId> sent_;                 // by chunk: gradients on the host
  int live_on_device_ = 0, live_on_host_ = 0;  // chunks brought and not yet sent back
  int64_t on_device_ = 0, on_host_ = 0;        // their elements
};

}  // namespace zeno::zero
