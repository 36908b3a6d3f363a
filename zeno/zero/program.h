// A training step as data: a flat list of instructions on lanes, with the memory each one touches.
//
// Stages, offload, prefetch, recompute, accumulation and the order of micro-batches are decided by the
// compiler (compile()) and appear here only as instructions. The executor runs the list, the planner walks
// it, tests check it, the trace is this list with times. Lanes are in-order queues; `waits` and `carried` are
// the only other ordering: a step begins before the one before it has ended, wherever nothing is shared.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "zeno/device/memory.h"
#include "zeno/zero/units.h"

namespace zeno::zero {

enum class Lane {
  compute,
  gather,  // parameters on their way to use
  reduce,
  read,     // disk to host
  fetch,    // host to device
  update,   // states that had to be brought; those that are at hand are updated on the compute lane
  store,    // device to host
  spill,    // the same for activations, which must not queue behind states
  refill,   // and back
  write,    // host to disk
  send,     // gradients to the host
  host,     // updates by the CPU beside a GPU
  publish,  // what the CPU updated, to the device
};
inline constexpr int kLanes = int(Lane::publish) + 1;

enum class Op {
  start,        // clear the step's sums
  read,         // a chunk from the disk
  fetch,        // a chunk, the parameters of a group or an activation from the host to the device
  store,        // a chunk or an activation from the device to the host
  write,        // a chunk to the disk
  send,         // a chunk's gradients to the host
  gather,       // assemble chunks of a group from all ranks
  decode,       // the parameters of a group in NF4, for use
  zero_grads,   // clear a gradient buffer
  forward,      // a layer over a micro-batch
  recompute,    // the same again, to fill `saved` before backward
  loss,         // the last layer: loss and its gradients
  backward,     // a layer over a micro-batch
  add_grads,    // one gradient buffer added to another
  reduce,       // sum chunks of gradients over ranks
  reduce_rows,  // the same for the touched rows of an embedding
  sum_losses,   // exact sums of the micro-batches' losses and, in evaluation, of their hits
  scan,         // sum of squares and non-finite values of a group's own gradients
  norm,         // combine sums of all ranks: global norm, clip factor, overflow
  update,       // optimizer step of a chunk
  finish,       // hand the step's outcome to the host
};
std::string_view name_of(Op op);
std::string_view name_of(Lane lane);

// A stretch of memory that exists from instruction `first` to instruction `last`. Regions of one purpose
// share a pool; two regions may share bytes when their lives do not meet.
using RegionId = int;
inline constexpr RegionId kNoRegion = -1;
struct Region {
  Tier tier = Tier::device;
  Purpose purpose = Purpose::workspace;
  size_t bytes = 0;
  int first = 0, last = 0;
  size_t offset = 0;  // in its pool
};

// A group's parameters or gradients as an instruction sees them: in a region, or in the group's own storage.
struct Binding {
  int group = 0;
  RegionId region = kNoRegion;
  bool fresh = false;  // gradients: nothing there yet, the layer writes
};

// A run of chunks of a group that takes part in a collective.
struct ChunkRange {
  int group = 0;
  int first = 0, count = 0;     // chunks of the group's partition
  RegionId region = kNoRegion;  // full buffer of the group; kNoRegion: the group's storage
  bool accumulate = false;      // reduce: add to what the shard holds
};

// What a move between tiers carries: masters and moments, parameters, or an activation. A fetch of a chunk's
// parameters without a target brings them where they are kept.
enum class Moved { states, params, activation };
std::string_view name_of(Moved moved);

struct Instruction {
  Op op = Op::forward;
  Lane lane = Lane::compute;
  int layer = 0;  // index of the unit it serves
  int micro_batch = -1;
  // Activations of forward, recompute, loss and backward.
  RegionId x = kNoRegion, y = kNoRegion, saved = kNoRegion, workspace = kNoRegion;
  nn::Recompute keep = nn::Recompute::none;  // what `saved` holds: everything, or what is costly (never full)
  std::vector<Binding> params, grads;
  std::vector<ChunkRange> chunks;  // gather, reduce
  RegionId wire = kNoRegion;       // reduce: copy in the communication dtype
  // decode, zero_grads, add_grads (destination), scan, update, reduce_rows; read, fetch, store: where to
  Binding target;
  // add_grads; decode, gather, fetch, store, write: from where (kNoRegion: where it is kept); update by the
  // CPU: gradients
  RegionId source = kNoRegion;
  Moved moved = Moved::states;  // read, fetch, store, write
  int chunk = -1;               // those and update: of UnitTable::chunks; -1: a whole group's parameters
  RegionId states = kNoRegion;  // update: masters and moments (kNoRegion: where they are kept)
  RegionId made = kNoRegion;    // update: the new parameters (kNoRegion: where they are kept)
  std::vector<int> waits;       // earlier instructions on other lanes
  std::vector<int> carried;     // instructions of the step before, on other lanes
  bool signals = false;         // some later instruction waits for this one
};

struct Program {
  std::vector<Instruction> instructions;
  std::vector<Region> regions;
  std::array<std::array<size_t, kPurposes>, kTiers.size()> pool_bytes{};  // by tier and purpose
  bool scatter = false;  // reductions leave each rank its own shard
  bool trains = true;    // false: evaluation, which changes no state

  bool uses(Lane lane) const;
};

// Everything the compiler needs to know about the machine and the batch.
struct CompileInput {
  const nn::LayerList& model;
  const UnitTable& units;
  const Policy& policy;  // normalized
  int world = 1;
  nn::BatchShape shape;  // of one micro-batch
};

// The program of a step; of an evaluation where the policy says that nothing is trained.
Program compile(const CompileInput& input);
// Forward and loss of the same micro-batches in the same order, with the same gathers: no gradients, no
// update.
Program compile_evaluation(const CompileInput& input);

// One line per instruction, for people, for the comparison between ranks and for tests.
std::string describe(const Program& program, const UnitTable& units);
std::string describe(const Instruction& instruction, const UnitTable& units);

// Elements a rank must receive from others in one step: (N-1)/N of every padded buffer that is gathered or
// reduced (an all-reduce counts twice, as reduce-scatter plus all-gather).
struct ProgramTraffic {
  int64_t gathered = 0, reduced = 0;
  int64_t nf4_bytes = 0;  // gathers of groups in NF4 are counted here, in bytes
};
ProgramTraffic traffic_of(const Program& program, const UnitTable& units, int world);

}  // namespace zeno::zero
