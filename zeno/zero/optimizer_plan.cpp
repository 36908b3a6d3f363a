#include "zeno/zero/optimizer_plan.h"

#include <utility>

namespace zeno::zero {

OptimizerPlan::OptimizerPlan(const CompileInput& input, ProgramBuilder& builder)
    : input_(input),
      builder_(builder),
      layout_(input.units, input.policy, 0),
      brought_(input.units.chunks.size()),
      sent_(input.units.chunks.size(), kNoRegion) {
  for (int c = 0; c < int(input.units.chunks.size()); ++c) {
    if (input.units.chunks[size_t(c)].moves) moving_.push_back(c);
  }
}

Instruction OptimizerPlan::instruction(Op op, Lane lane, int chunk, Moved moved) const {
  const int group = input_.units.chunks[size_t(chunk)].group;
  Instruction in{.op = op, .lane = lane, .layer = input_.units.groups[size_t(group)].unit};
  in.target.group = group;
  in.chunk = chunk;
  in.moved = moved;
  return in;
}

// One chunk on its way in and one on its way out must always have room.
bool OptimizerPlan::fits(const StateChunk& chunk) const {
  constexpr int kLeast = 2;
  if (live_ < kLeast) return true;
  const Offload& offload = input_.policy.offload;
  const bool device = !offload.far_host || on_device_ + chunk.count <= offload.device_window;
  const bool host = chunk.tier != Tier::disk || on_host_ + chunk.count <= offload.host_window;
  return device && host;
}

void OptimizerPlan::bring_ahead() {
  while (next_ < moving_.size() && fits(input_.units.chunks[size_t(moving_[next_])])) bring(moving_[next_++]);
}

void OptimizerPlan::bring(int c) {
  const StateChunk& chunk = input_.units.chunks[size_t(c)];
  Brought& brought = brought_[size_t(c)];
  ++live_;
  if (chunk.tier == Tier::disk) {
    brought.on_host =
        builder_.region(Purpose::staging, layout_.extent_bytes(StateStore::OnDisk::states, c), Tier::host);
    Instruction in = instruction(Op::read, Lane::read, c, Moved::states);
    in.target.region = brought.on_host;
    builder_.add(std::move(in));
    on_host_ += chunk.count;
  }
  if (!input_.policy.offload.far_host) return;
  brought.on_device = builder_.region(Purpose::staging, layout_.block_bytes(c));
  Instruction in = instruction(Op::fetch, Lane::fetch, c, Moved::states);
  in.source = brought.on_host;
  in.target.region = brought.on_device;
  builder_.add(std::move(in));
  on_device_ += chunk.count;
}

void OptimizerPlan::update_all() {
  for (int c = 0; c < int(input_.units.chunks.size()); ++c) {
    if (!input_.units.groups[size_t(input_.units.chunks[size_t(c)].group)].trainable) continue;
    if (input_.units.chunks[size_t(c)].by_cpu) {
      update_by_cpu(c);
    } else {
      update(c);
    }
    bring_ahead();
  }
}

void OptimizerPlan::update(int c) {
  const StateChunk& chunk = input_.units.chunks[size_t(c)];
  const Group& group = input_.units.groups[size_t(chunk.group)];
  const Brought& brought = brought_[size_t(c)];
  const bool moves = brought.on_host != kNoRegion || brought.on_device != kNoRegion;
  Instruction in = instruction(Op::update, moves ? Lane::update : Lane::compute, c, Moved::states);
  in.states = brought.on_device != kNoRegion ? brought.on_device : brought.on_host;
  if (group.moves) {
    const bool far = input_.policy.offload.far_host;
    in.made = builder_.region(Purpose::staging, layout_.extent_bytes(StateStore::OnDisk::params, c),
                              far ? Tier::device : Tier::host);
  }
  const RegionId made = in.made;
  builder_.add(std::move(in));
  if (moves) send_back_states(c);
  if (made != kNoRegion) send_back_params(c, made);
}

// In the order in which backward completes them.
void OptimizerPlan::send_gradients() {
  for (int c = int(input_.units.chunks.size()) - 1; c >= 0; --c) {
    const StateChunk& chunk = input_.units.chunks[size_t(c)];
    if (!chunk.by_cpu) continue;
    Instruction in = instruction(Op::send, Lane::send, c, Moved::states);
    in.target.region = sent_[size_t(c)] =
        builder_.region(Purpose::staging, size_t(chunk.count) * size_of(input_.policy.grad), Tier::host);
    builder_.add(std::move(in));
  }
}

void OptimizerPlan::update_by_cpu(int c) {
  Instruction in = instruction(Op::update, Lane::host, c, Moved::states);
  in.source = sent_[size_t(c)];
  in.made =
      builder_.region(Purpose::staging, layout_.extent_bytes(StateStore::OnDisk::params, c), Tier::host);
  Instruction publish = instruction(Op::fetch, Lane::publish, c, Moved::params);
  publish.source = in.made;
  publishing_.push_back(in.made);
  if (publishing_.size() > kPublishing) publishing_.pop_front();
  builder_.add(std::move(in));
  builder_.add(std::move(publish));
  for (RegionId made : publishing_) builder_.hold(made);
}

void OptimizerPlan::send_back_states(int c) {
  const StateChunk& chunk = input_.units.chunks[size_t(c)];
  const Brought& brought = brought_[size_t(c)];
  --live_;
  if (brought.on_device != kNoRegion) {
    Instruction in = instruction(Op::store, Lane::store, c, Moved::states);
    in.source = brought.on_device;
    in.target.region = brought.on_host;
    builder_.add(std::move(in));
    on_device_ -= chunk.count;
  }
  if (brought.on_host == kNoRegion) return;
  Instruction in = instruction(Op::write, Lane::write, c, Moved::states);
  in.source = brought.on_host;
  builder_.add(std::move(in));
  on_host_ -= chunk.count;
}

void OptimizerPlan::send_back_params(int c, RegionId made) {
  const Group& group = input_.units.groups[size_t(input_.units.chunks[size_t(c)].group)];
  const bool on_disk = group.tier == Tier::disk;
  RegionId on_host = made;
  if (input_.policy.offload.far_host) {
    if (on_disk)
      on_host =
          builder_.region(Purpose::staging, layout_.extent_bytes(StateStore::OnDisk::params, c), Tier::host);
    Instruction in = instruction(Op::store, Lane::store, c, Moved::params);
    in.source = made;
    in.target.region = on_disk ? on_host : kNoRegion;
    builder_.add(std::move(in));
  }
  if (!on_disk) return;
  Instruction in = instruction(Op::write, Lane::write, c, Moved::params);
  in.source = on_host;
  builder_.add(std::move(in));
}

}  // namespace zeno::zero
