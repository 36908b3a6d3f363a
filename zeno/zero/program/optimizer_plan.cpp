#include "zeno/zero/program/optimizer_plan.h"

#include <utility>

namespace zeno::zero {
namespace {

// The order of the table, in which the next step needs the updated parameters, except for chunks that go from
// disk to a GPU. These are at the end of the table, so the disk would be idle while all others pass over the
// link. Instead, one of them follows every few chunks from the host, about as often as a disk delivers them.
// More often costs nothing while the step waits for the disk.
std::vector<int> update_order(const UnitTable& units, bool far_host) {
  constexpr int kLinkPerDisk = 8;
  std::vector<int> order, from_disk;
  const auto on_disk = [&](int c) { return far_host && units.chunks[size_t(c)].tier == Tier::disk; };
  for (int c = 0; c < int(units.chunks.size()); ++c)
    if (on_disk(c)) from_disk.push_back(c);
  size_t next = 0;
  int passed = 0;
  for (int c = 0; c < int(units.chunks.size()); ++c) {
    if (on_disk(c)) continue;
    order.push_back(c);
    passed += units.chunks[size_t(c)].moves;
    if (passed < kLinkPerDisk || next == from_disk.size()) continue;
    order.push_back(from_disk[next++]);
    passed = 0;
  }
  order.insert(order.end(), from_disk.begin() + ptrdiff_t(next), from_disk.end());
  return order;
}

// There must always be room for one chunk coming in and one going out.
bool has_room(int live, int64_t used, int64_t more, int64_t window) {
  constexpr int kLeast = 2;
  return live < kLeast || used + more <= window;
}

}  // namespace

OptimizerPlan::OptimizerPlan(const CompileInput& input, ProgramBuilder& builder)
    : input_(input),
      builder_(builder),
      layout_(input.units, input.policy, 0),
      order_(update_order(input.units, input.policy.offload.far_host)),
      brought_(input.units.chunks.size()),
      sent_(input.units.chunks.size(), kNoRegion) {
  for (const int c : order_) {
    const StateChunk& chunk = input.units.chunks[size_t(c)];
    if (chunk.moves && chunk.tier == Tier::disk) reads_.push_back(c);
    if (chunk.moves && input.policy.offload.far_host) fetches_.push_back(c);
  }
}

Payload OptimizerPlan::payload(Moved kind, int chunk) const {
  return {kind, input_.units.chunks[size_t(chunk)].group, chunk};
}

void OptimizerPlan::add(Lane lane, int chunk, Action action) {
  const int group = input_.units.chunks[size_t(chunk)].group;
  builder_.add({.action = std::move(action), .lane = lane, .unit = input_.units.groups[size_t(group)].unit});
}

// The disk runs ahead of the link: chunks that were read wait in host memory.
void OptimizerPlan::bring_ahead() {
  const Offload& offload = input_.policy.offload;
  const auto count = [&](int c) { return input_.units.chunks[size_t(c)].count; };
  while (next_read_ < reads_.size() &&
         has_room(live_on_host_, on_host_, count(reads_[next_read_]), offload.host_window))
    read(reads_[next_read_++]);
  while (next_fetch_ < fetches_.size() &&
         has_room(live_on_device_, on_device_, count(fetches_[next_fetch_]), offload.device_window) &&
         is_near(fetches_[next_fetch_]))
    fetch(fetches_[next_fetch_++]);
}

bool OptimizerPlan::is_near(int c) const {
  return input_.units.chunks[size_t(c)].tier != Tier::disk || brought_[size_t(c)].on_host != kNoRegion;
}

void OptimizerPlan::read(int c) {
  const RegionId on_host =
      builder_.region(Purpose::staging, layout_.extent_bytes(StateStore::OnDisk::states, c), Tier::host);
  brought_[size_t(c)].on_host = on_host;
  add(Lane::read, c, Read{.payload = payload(Moved::states, c), .to = on_host});
  on_host_ += input_.units.chunks[size_t(c)].count;
  ++live_on_host_;
}

void OptimizerPlan::fetch(int c) {
  Brought& brought = brought_[size_t(c)];
  brought.on_device = builder_.region(Purpose::staging, layout_.block_bytes(c));
  add(Lane::fetch, c,
      Fetch{.payload = payload(Moved::states, c), .from = brought.on_host, .to = brought.on_device});
  on_device_ += input_.units.chunks[size_t(c)].count;
  ++live_on_device_;
}

void OptimizerPlan::update_all() {
  for (const int c : order_) {
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
  RegionId made = kNoRegion;
  if (group.moves) {
    const bool far = input_.policy.offload.far_host;
    made = builder_.region(Purpose::staging, layout_.extent_bytes(StateStore::OnDisk::params, c),
                           far ? Tier::device : Tier::host);
  }
  add(moves ? Lane::update : Lane::compute, c,
      Update{.group = chunk.group,
             .chunk = c,
             .states = brought.on_device != kNoRegion ? brought.on_device : brought.on_host,
             .made = made});
  if (moves) send_back_states(c);
  if (made != kNoRegion) send_back_params(c, made);
}

// Sends them in the order in which backward completes them.
void OptimizerPlan::send_gradients() {
  for (int c = int(input_.units.chunks.size()) - 1; c >= 0; --c) {
    const StateChunk& chunk = input_.units.chunks[size_t(c)];
    if (!chunk.by_cpu) continue;
    sent_[size_t(c)] =
        builder_.region(Purpose::staging, size_t(chunk.count) * size_of(input_.policy.grad), Tier::host);
    add(Lane::grads, c, GradsToHost{.group = chunk.group, .chunk = c, .to = sent_[size_t(c)]});
  }
}

void OptimizerPlan::update_by_cpu(int c) {
  const RegionId made =
      builder_.region(Purpose::staging, layout_.extent_bytes(StateStore::OnDisk::params, c), Tier::host);
  publishing_.push_back(made);
  if (publishing_.size() > kPublishing) publishing_.pop_front();
  add(Lane::host, c,
      Update{.group = input_.units.chunks[size_t(c)].group,
             .chunk = c,
             .grads = sent_[size_t(c)],
             .made = made});
  add(Lane::publish, c, Fetch{.payload = payload(Moved::params, c), .from = made});
  for (RegionId region : publishing_) builder_.hold(region);
}

void OptimizerPlan::send_back_states(int c) {
  const StateChunk& chunk = input_.units.chunks[size_t(c)];
  const Brought& brought = brought_[size_t(c)];
  if (brought.on_device != kNoRegion) {
    add(Lane::store, c,
        Store{.payload = payload(Moved::states, c), .from = brought.on_device, .to = brought.on_host});
    on_device_ -= chunk.count;
    --live_on_device_;
  }
  if (brought.on_host == kNoRegion) return;
  add(Lane::write, c, Write{.payload = payload(Moved::states, c), .from = brought.on_host});
  on_host_ -= chunk.count;
  --live_on_host_;
}

void OptimizerPlan::send_back_params(int c, RegionId made) {
  const Group& group = input_.units.groups[size_t(input_.units.chunks[size_t(c)].group)];
  const bool on_disk = group.tier == Tier::disk;
  RegionId on_host = made;
  if (input_.policy.offload.far_host) {
    if (on_disk)
      on_host =
          builder_.region(Purpose::staging, layout_.extent_bytes(StateStore::OnDisk::params, c), Tier::host);
    add(Lane::store, c,
        Store{.payload = payload(Moved::params, c), .from = made, .to = on_disk ? on_host : kNoRegion});
  }
  if (on_disk) add(Lane::write, c, Write{.payload = payload(Moved::params, c), .from = on_host});
}

}  // namespace zeno::zero
