// What is sharded, when it moves, and what is recomputed. Stages are presets over this; only the compiler of
// step programs reads it.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "zeno/base/dtype.h"
#include "zeno/comm/communicator.h"
#include "zeno/comm/mesh.h"
#include "zeno/device/memory.h"
#include "zeno/nn/layer.h"

namespace zeno::zero {

// horizontal: each micro-batch through all layers. vertical: all micro-batches of a layer before the next
// layer, so that a sharded layer is gathered once per pass and its gradient is complete early.
enum class Order { horizontal, vertical };

// What the stages of ZeRO shard over. everywhere: all ranks that see different data. in_groups: groups along
// the mesh's shard axes, each of which holds a copy (MiCS, HSDP). params_in_groups: groups for parameters,
// which every pass gathers; all ranks for gradients and optimizer states, which a step reduces and updates
// once.
enum class Sharding { everywhere, in_groups, params_in_groups };

// Which states leave the device between uses, and how much of them moves at once. Counts are elements of one
// rank. Each tier is filled before the next slower one: the device, then the host, then the disk.
struct Offload {
  static constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

  Tier params = Tier::device;  // requires sharded parameters, or one rank
  Tier optimizer = Tier::device;
  bool activations = false;   // inputs of recomputed segments wait in host memory; requires far_host
  double ratio = 1;           // part of the optimizer states that leaves the device
  int64_t host_states = 0;    // of states with tier disk, how many stay in host memory
  int64_t host_params = 0;    // the same for parameters
  int64_t chunk = 16 << 20;   // states that move as one
  int64_t device_window = 0;  // states that are on the device at once; at least two chunks
  int64_t host_window = 0;    // states from disk that are in host memory at once; at least two chunks
  double cpu_share = 0;       // part of the states on the host of a GPU that the CPU updates
  bool far_host = false;      // the device is a GPU, with memory of its own
};

struct Policy {
  // The axes that each state is sharded over; none: every rank keeps all of it. Parameters and gradients may
  // be sharded only over axes that the optimizer states are sharded over too.
  comm::Axes params, grads, optimizer;
  Sharding sharding = Sharding::everywhere;  // how apply_stage shards

  DType compute = DType::f32;
  DType grad = DType::f32;  // accumulation
  DType wire = DType::f32;  // what reductions send
  // Who sums gradients over ranks; native gives up the promise of same bits.
  comm::Reduction reduction = comm::Reduction::tree;
  bool int8_weights = false;  // gathers for forward and backward send 8-bit cells (wire_cells.h)
  // Reductions into shards exchange cells, of 8 bits along the shard axes and of 4 bits along `outer`.
  bool coded_gradients = false;
  DType states = DType::f32;     // masters and moments; bf16 rounds them stochastically (optimizer.h)
  std::optional<DType> moments;  // if they differ from masters; u8: 8-bit cells (moment_cells.h)
  uint64_t seed = 0;             // for that rounding, dropout and noise

  int64_t reduce_bucket = 500'000'000;  // elements
  int64_t gather_bucket = 500'000'000;  // elements
  int64_t prefetch = 50'000'000;        // elements gathered ahead of use; 0: none
  int64_t max_live = 1'000'000'000;     // bound on prefetch: elements gathered at once
  int64_t reuse_distance = 0;  // keep a gathered unit whose next use is at most this many elements away
  int64_t persist_below = 0;   // tensors up to this size stay gathered
  int64_t persist_total = std::numeric_limits<int64_t>::max();  // cap on their sum
  bool overlap = true;                                          // collectives on streams of their own
  bool sparse_gradients = false;                                // reduce the touched rows of embeddings only

  Order order = Order::horizontal;
  int micro_batches = 1;
  nn::Recompute recompute = nn::Recompute::none;
  int recompute_every = 1;                             // blocks between checkpoints (full only)
  int recompute_blocks = -1;                           // how many blocks, from the first on; -1: all
  nn::Recompute recompute_rest = nn::Recompute::none;  // the other blocks: none or selective
  bool reproducible = false;                           // same bits at world sizes 1, 2, 4, 8
  bool deterministic = false;  // GPU: same bits in every run; `reproducible` implies it
  bool fp8 = false;            // GPU, bf16 compute: matmuls of blocks in fp8

  Offload offload;
  bool nf4_base = false;       // frozen weights of blocks are stored in 4 bits (nf4.h), decoded for each use
  bool trains = true;          // false: the engine only evaluates; every parameter is frozen
  bool moments_first = true;   // m; false for plain SGD
  bool moments_second = true;  // v; false for SGD and Lion

  // Masters on the same device as their parameters keep only the bits that the parameters lack
  // (master_rest.h).
  bool splits_masters() const { return compute == DType::bf16 && states == DType::f32; }
};

// The placements of ZeRO stage 0, 1, 2 or 3.
inline constexpr int kStages = 4;
void apply_stage(Policy& policy, int stage);
bool shards_parameters(int stage);

// Settles what follows from other settings and the mesh: nothing is sharded over an axis of one rank;
// reproducible runs go layer by layer and keep no full gradients if the optimizer is sharded.
Policy normalized(Policy policy, const comm::Mesh& mesh);

}  // namespace zeno::zero
