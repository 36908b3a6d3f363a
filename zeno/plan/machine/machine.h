// What a machine offers to a training step: rates and sizes, measured (`zeno doctor --measure`) or known by
// name. The planner only multiplies; nothing here touches hardware.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/base/dtype.h"
#include "zeno/base/file.h"
#include "zeno/device/device.h"

namespace zeno::plan {

// A link between ranks: bytes per second that one rank sends while it receives as many, and seconds per hop.
struct Link {
  double rate = 0, latency = 0;
};

// Rates are bytes (or FLOPs, or elements) per second that a long run sustains, not a data sheet's.
struct Machine {
  std::string name;
  Device::Kind kind = Device::Kind::cpu;
  int nodes = 1;
  int node_ranks = 1;  // devices of a node; on CPUs any number of ranks shares it

  // A device; on CPUs all cores of a node together. FLOP/s exclude the time that the operands' bytes take at
  // memory_rate, and their packing: these are added (instruction_cost.h).
  double matmul_16bit = 0, matmul_fp32 = 0, matmul_fp8 = 0;  // FLOP/s
  double attention = 0;                                      // FLOP/s, 16 bits; backward is 2.5 × forward
  double memory_rate = 0;  // bytes: GPUs, read plus written; CPUs, read, written or both, each once
  double packing = 0;      // elements of matmul operands that a CPU copies into panels; 0: costs nothing
  double launch = 0;       // overhead of an instruction in seconds
  double memory = 0;       // bytes

  // The host of a node, shared by its devices.
  double host_memory = 0;   // bytes
  double host_updates = 0;  // elements per second of AdamW by the CPU
  double host_link = 0;     // per direction and device, both directions at once
  double disk_read = 0, disk_write = 0;
  double disk = 0;  // bytes

  // Ranks of a node (on CPUs the rate is that of all together); nodes, over each rail.
  Link inside, between;
  // Network links of a node, which its ranks share: of as many as there are devices, each has its own.
  int rails = 1;

  double matmul(DType dtype, bool fp8) const;
  int ranks() const { return nodes * node_ranks; }
  // Are the links known that this many ranks need?
  bool links(int ranks) const;
  // The same machine with this many ranks: nodes are filled one after the other, cores of a CPU are shared
  // out.
  Machine with_ranks(int ranks) const;
};

// "8 rails of 45.0 GB/s for the 8 ranks of a node"; empty where these ranks share one.
std::string describe_rails(const Machine& machine, int ranks);

// "h100-8", or "h100-8x64" for 64 such nodes. Throws Error(usage) with the names there are.
Machine named_machine(std::string_view name);
std::vector<std::string> machine_names();

// JSON. Throws Error(input) when a field is missing, unknown or not a positive number.
Machine load_machine(const Path& file);
void save_machine(const Machine& machine, const Path& file);
// Both throw NewerVersion where the file is of a newer Zeno.

// A name, or a file where there is one.
Machine find_machine(const std::string& name_or_file);

}  // namespace zeno::plan
