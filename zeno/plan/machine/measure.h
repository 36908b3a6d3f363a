// The rates of this machine, measured with the kernels, streams, collectives and files that a training step
// uses: what `zeno doctor --measure` stores and a plan of time multiplies. docs/plan.md says how each figure
// is measured.
//
// Blocks for as long as it takes (about 15 s with the usual sizes) and wants the machine for itself: all
// cores, and the device. A few hundred MB of host memory, up to 2 GB of a GPU's, and for a while a file in
// `folder`. Thread rule: one measurement at a time.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "zeno/plan/machine/machine.h"

namespace zeno::plan {

// How much is worked on, and for how long.
struct MeasureSizes {
  double seconds = 4;  // of the longest measurement, matmul in 16 bits; the others take a half of it or less
  // A transformer's linears: tokens x width, weights of width x width and width x inner.
  int64_t tokens = 2048, width = 1024, inner = 4096;
  int64_t seq = 1024, head_dim = 64;  // of attention; tokens are a multiple of seq
  int64_t elements = 16 << 20;        // of the flat arrays that AdamW updates on the host
  size_t copy_bytes = 64 << 20;       // within the device, to its host and between ranks
  size_t disk_bytes = 1024 << 20;     // of the file
};
MeasureSizes usual_sizes(Device::Kind kind);

// One line of the table: "matmul, 16 bits", "203 GFLOP/s", "4 linears, forward and backward, for 4.0 s".
struct Measured {
  std::string_view what;
  std::string rate, how;
};

struct MeasureOptions {
  Device::Kind kind = Device::Kind::cpu;
  Path folder = ".";  // whose disk is measured
  Path matmul_plans;  // GPU: plans that runs keep there (matmul_plans.h); empty: none are kept
  // Of the network between nodes, as the user knows it: bytes per second of each rail, and how many a node
  // has; 0: one for each GPU, one for a CPU.
  double between_rate = 0;
  int rails = 0;
  MeasureSizes sizes;
  std::function<void(const Measured&)> report;  // called after each measurement; may be empty
};

// Throws before anything is measured: Error(usage) for a device that is not there or a folder that is none,
// Error(io) when the disk has no room.
Machine measure_machine(const MeasureOptions& options);

// The file of a device's profile in a cache folder.
Path machine_file(const Path& cache, Device::Kind kind);
// The profile that was measured; nothing when there is none. A damaged one is a line in the log and counts as
// none: no run should stop for it.
std::optional<Machine> measured_machine(const Path& cache, Device::Kind kind);

}  // namespace zeno::plan
