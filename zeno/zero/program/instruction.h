// One instruction of a step program: an action, and where and when it runs.
//
// There is a struct for each kind of action. It has the fields that this kind needs, and says which memory it
// reads and writes (touch()) and, if ranks communicate, which lane's communicator it uses (comm_lane). The
// executor, the checker, the planner, the trace and the text visit them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "zeno/kernels/wire_cells.h"
#include "zeno/zero/program/touches.h"
#include "zeno/zero/units.h"

namespace zeno::zero {

// A group's parameters or gradients as an action sees them: in a region, or in the group's own storage.
struct Binding {
  int group = 0;
  RegionId region = kNoRegion;
};

// The gradients that a layer adds to.
struct GradBindings {
  std::vector<Binding> groups;
  bool fresh = false;  // the buffer holds nothing yet: the layer writes instead of adding
};

// Consecutive chunks of a group that take part in a collective.
struct ChunkRange {
  int group = 0;
  int first = 0, count = 0;     // chunks of the group's partition
  RegionId region = kNoRegion;  // full buffer of the group; kNoRegion: the group's storage
};

// What a move between tiers moves.
enum class Moved { states, params, activation };  // states: masters and moments
std::string_view name_of(Moved moved);
struct Payload {
  Moved kind = Moved::states;
  int group = 0;   // for states and parameters
  int chunk = -1;  // index in UnitTable::chunks; -1: all that this rank keeps of the group's parameters

  // Where it is kept between uses. An activation has no home: it moves between regions.
  Storage home() const {
    return kind == Moved::states ? Storage{Kept::states, chunk} : Storage{Kept::params, group};
  }
};

// Begins a step: clears its sums.
struct Start {
  static constexpr std::string_view name = "start";
  void touch(Touches& touches) const;
};

// Reads a chunk from disk into host memory.
struct Read {
  static constexpr std::string_view name = "read";
  Payload payload;
  RegionId to = kNoRegion;
  void touch(Touches& touches) const;
};

// Copies a chunk, the parameters of a group or an activation from the host to the device.
struct Fetch {
  static constexpr std::string_view name = "fetch";
  Payload payload;
  RegionId from = kNoRegion, to = kNoRegion;  // kNoRegion: where it is kept
  void touch(Touches& touches) const;
};

// Copies a chunk or an activation from the device to the host.
struct Store {
  static constexpr std::string_view name = "store";
  Payload payload;
  RegionId from = kNoRegion, to = kNoRegion;  // `to` kNoRegion: where it is kept
  void touch(Touches& touches) const;
};

// Writes a chunk from host memory to disk.
struct Write {
  static constexpr std::string_view name = "write";
  Payload payload;
  RegionId from = kNoRegion;
  void touch(Touches& touches) const;
};

// Copies a chunk's gradients to the host, where the CPU updates the chunk.
struct GradsToHost {
  static constexpr std::string_view name = "grads_to_host";
  int group = 0, chunk = 0;
  RegionId to = kNoRegion;
  void touch(Touches& touches) const;
};

// Encodes this rank's part of a group's parameters in 8-bit cells, in the region where gathers assemble all
// parts.
struct Encode {
  static constexpr std::string_view name = "encode";
  int group = 0;
  RegionId from = kNoRegion;  // kNoRegion: the group's storage
  RegionId to = kNoRegion;
  void touch(Touches& touches) const;
};

// Assembles chunks of a group's parameters from the ranks along some axes.
struct Gather {
  static constexpr std::string_view name = "gather";
  static constexpr Lane comm_lane = Lane::gather;
  comm::Axes over;
  comm::Axes sharded;  // a rank sends its part over these axes and gets its part over these without `over`
  ChunkRange chunks;
  RegionId from = kNoRegion;  // what is sent; kNoRegion: the group's storage
  bool in_place = false;      // the part that is sent lies within the assembled one
  void touch(Touches& touches) const;
};

// Decodes the parameters of a group from NF4 or 8-bit cells for use.
struct Decode {
  static constexpr std::string_view name = "decode";
  int group = 0;
  RegionId from = kNoRegion;  // kNoRegion: the group's storage
  RegionId to = kNoRegion;
  void touch(Touches& touches) const;
};

// Clears a gradient buffer.
struct ZeroGrads {
  static constexpr std::string_view name = "zero_grads";
  Binding grads;
  void touch(Touches& touches) const;
};

// A part of a layer's pass (nn::Layer::parts). All parts of a pass see the same memory.
struct Part {
  int index = 0, count = 1;

  bool first() const { return index == 0; }
  bool last() const { return index + 1 == count; }
};

// A layer over a micro-batch.
struct Forward {
  static constexpr std::string_view name = "forward";
  RegionId x = kNoRegion, y = kNoRegion, saved = kNoRegion, workspace = kNoRegion;
  nn::Recompute keep = nn::Recompute::none;  // what `saved` holds; never full
  std::vector<Binding> params;
  Part part = {};
  void touch(Touches& touches) const;
};

// Runs the same forward again, to fill `saved` before backward.
struct Recompute {
  static constexpr std::string_view name = "recompute";
  Forward forward;
  void touch(Touches& touches) const { forward.touch(touches); }
};

// The last layer over a micro-batch: the loss and its gradients.
struct Loss {
  static constexpr std::string_view name = "loss";
  RegionId x = kNoRegion;
  RegionId dx = kNoRegion;  // kNoRegion: evaluation
  RegionId workspace = kNoRegion;
  std::vector<Binding> params;
  GradBindings grads;
  void touch(Touches& touches) const;
};

// A layer over a micro-batch.
struct Backward {
  static constexpr std::string_view name = "backward";
  RegionId x = kNoRegion;
  RegionId dy = kNoRegion;  // becomes the gradient of x
  RegionId saved = kNoRegion, workspace = kNoRegion;
  nn::Recompute keep = nn::Recompute::none;  // as in Forward
  std::vector<Binding> params;
  GradBindings grads;
  Part part = {};
  void touch(Touches& touches) const;
};

// A joint: what passes between ranks after a part of a layer's pass (nn::Joint).
struct Exchange {
  static constexpr std::string_view name = "exchange";
  static constexpr Lane comm_lane = Lane::joint;
  comm::Axes over;
  bool backward = false;
  int part = 0;
  nn::Recompute keep = nn::Recompute::none;  // as in the pass
  RegionId saved = kNoRegion, workspace = kNoRegion;
  int64_t elements = 0;  // that this rank has for all ranks, including itself
  void touch(Touches& touches) const;
};

// Adds one gradient buffer to another.
struct AddGrads {
  static constexpr std::string_view name = "add_grads";
  Binding sum;
  RegionId from = kNoRegion;
  bool owned = false;  // only the elements that this rank updates
  void touch(Touches& touches) const;
};

// Sums chunks of gradients over the ranks along some axes.
struct Reduce {
  static constexpr std::string_view name = "reduce";
  static constexpr Lane comm_lane = Lane::reduce;
  struct Summand {
    ChunkRange chunks;
    bool accumulate = false;  // adds the sum to what the shard holds
  };
  comm::Axes over;
  comm::Axes sharded;   // a rank contributes its part over these axes
  bool scatter = true;  // and gets its part over these and `over`; false: the whole sum
  std::vector<Summand> bucket;
  RegionId wire = kNoRegion;  // copy in the communication dtype, or in cells
  // With cells, ranks exchange slices, and each sums those that it received in `arrived`.
  std::optional<WireCode> code;
  RegionId arrived = kNoRegion;
  // Sums of the whole bucket between one reduction and the next, in fp32.
  RegionId from = kNoRegion, to = kNoRegion;  // kNoRegion: the gradients
  void touch(Touches& touches) const;
};

// Gathers sums of which each rank along some axes has its part, for ranks that keep all gradients.
struct GatherSums {
  static constexpr std::string_view name = "gather_sums";
  static constexpr Lane comm_lane = Lane::reduce;
  comm::Axes over;
  std::vector<ChunkRange> bucket;
  RegionId wire = kNoRegion;  // as in Reduce
  void touch(Touches& touches) const;
};

// Sums the touched rows of an embedding's gradient.
struct ReduceRows {
  static constexpr std::string_view name = "reduce_rows";
  static constexpr Lane comm_lane = Lane::reduce;
  comm::Axes over;
  int group = 0;
  void touch(Touches& touches) const;
};

// From one stage of a pipeline to another, by their places along `pipe`.
struct Hop {
  int from = 0, to = 0;
  bool operator==(const Hop&) const = default;
};

// Sends an activation, its gradient, or the gradients of a group that this rank updates to another stage.
struct Send {
  static constexpr std::string_view name = "send";
  static constexpr Lane comm_lane = Lane::send;
  comm::Axes over{comm::Axis::pipe};
  Hop hop;
  RegionId from = kNoRegion;
  int group = -1;        // of gradients
  int64_t elements = 0;  // that this rank sends
  void touch(Touches& touches) const;
};

// Receives what another stage sends.
struct Receive {
  static constexpr std::string_view name = "receive";
  static constexpr Lane comm_lane = Lane::send;  // the sender's lane
  comm::Axes over{comm::Axis::pipe};
  Hop hop;
  RegionId to = kNoRegion;  // kNoRegion: the group's gradients
  int group = -1;
  int64_t elements = 0;
  void touch(Touches& touches) const;
};

// Sums the losses of the micro-batches exactly and, in evaluation, their hits.
struct SumLosses {
  static constexpr std::string_view name = "sum_losses";
  void touch(Touches& touches) const;
};

// Sums the squares and counts the non-finite values of this rank's gradients of a group.
struct Scan {
  static constexpr std::string_view name = "scan";
  int group = 0;
  void touch(Touches& touches) const;
};

// Combines the sums of all ranks: global norm, clip factor, overflow.
struct Norm {
  static constexpr std::string_view name = "norm";
  static constexpr Lane comm_lane = Lane::reduce;
  comm::Axes over;
  void touch(Touches& touches) const;
};

// The optimizer step of a chunk. States without a region are updated where they are kept.
struct Update {
  static constexpr std::string_view name = "update";
  int group = 0, chunk = 0;
  RegionId grads = kNoRegion;
  RegionId states = kNoRegion;  // masters and moments
  RegionId made = kNoRegion;    // the new parameters
  void touch(Touches& touches) const;
};

// Hands the step's outcome to the host.
struct Finish {
  static constexpr std::string_view name = "finish";
  void touch(Touches& touches) const;
};

using Action = std::variant<Start, Read, Fetch, Store, Write, GradsToHost, Encode, Gather, Decode, ZeroGrads,
                            Forward, Recompute, Loss, Backward, Exchange, AddGrads, Reduce, GatherSums,
                            ReduceRows, Send, Receive, SumLosses, Scan, Norm, Update, Finish>;

struct Instruction {
  Action action;
  Lane lane = Lane::compute;
  int unit = 0;  // the index of the layer that it serves
  int micro_batch = -1;
  std::vector<int> waits;    // earlier instructions on other lanes
  std::vector<int> carried;  // instructions of the step before, on other lanes
  bool signals = false;      // some later instruction waits for this one

  template <class Kind>
  bool is() const {
    return std::holds_alternative<Kind>(action);
  }
  // Null if the action is of another kind.
  template <class Kind>
  const Kind* as() const {
    return std::get_if<Kind>(&action);
  }
  template <class Kind>
  Kind* as() {
    return std::get_if<Kind>(&action);
  }
};

std::string_view name_of(const Instruction& in);
Touches touches_of(const Instruction& in);
// The communicator that it uses, which may be that of another lane than it runs on. Nothing if it does not
// communicate.
struct CommUse {
  Lane lane = Lane::gather;
  comm::Axes over;
  auto operator<=>(const CommUse&) const = default;
};
std::optional<CommUse> comm_use_of(const Instruction& in);
// The parameters that a layer reads; empty if the instruction does not run a layer.
std::span<const Binding> params_of(const Instruction& in);
// The gradients that a layer adds to; null if there are none.
const GradBindings* grads_of(const Instruction& in);
// One line, for users and traces.
std::string describe(const Instruction& in, const UnitTable& units);

}  // namespace zeno::zero
