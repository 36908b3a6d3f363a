// The in-order queues that the instructions of a step run on.
#pragma once

#include <array>
#include <string_view>

namespace zeno::zero {

enum class Lane {
  compute,
  gather,  // parameters on their way to use
  reduce,
  joint,    // between the parts of layers
  receive,  // from other stages of a pipeline
  send,     // and to them
  read,     // disk to host
  fetch,    // host to device
  update,   // states that were fetched; those on the device are updated on the compute lane
  store,    // device to host
  spill,    // activations, device to host; they must not queue behind states
  refill,   // activations, host to device
  write,    // host to disk
  grads,    // gradients to the host
  host,     // updates by the CPU beside a GPU
  publish,  // parameters that the CPU updated, to the device
};
inline constexpr int kLanes = int(Lane::publish) + 1;

constexpr std::string_view name_of(Lane lane) {
  constexpr std::array<std::string_view, kLanes> kNames{
      "compute", "gather", "reduce", "joint",  "receive", "send",  "read", "fetch",
      "update",  "store",  "spill",  "refill", "write",   "grads", "host", "publish"};
  return kNames[size_t(lane)];
}

}  // namespace zeno::zero
