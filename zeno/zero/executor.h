// Runs a step program: every instruction goes to the stream of its lane, after the events it waits for. Knows
// nothing of stages, accumulation or recompute; instruction.h says what each instruction means.
//
// Owns the streams, the communicators and the temporary memory (regions); the state between steps belongs to
// the StateStore. Steps may be launched ahead: the next one starts on the device when this one is done there.
// With one rank on a GPU and one lane, the part of a step that does not depend on the step's numbers is
// recorded as a CUDA graph when two steps in a row are the same, and replayed from then on. Thread rule: one
// thread per rank; lanes that move states are queued by threads of their own (executor_launch.cpp).
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "zeno/comm/world.h"
#include "zeno/device/buffer.h"
#include "zeno/device/graph.h"
#include "zeno/device/stream.h"
#include "zeno/kernels/optimizer.h"
#include "zeno/zero/lane_progress.h"
#include "zeno/zero/program/program.h"
#include "zeno/zero/sparse_rows.h"
#include "zeno/zero/state_store.h"
#include "zeno/zero/step_clock.h"
#include "zeno/zero/step_sums.h"

namespace zeno::zero {

// The values that differ from step to step; everything else is in the program.
struct StepInputs {
  OptimizerHyper hyper;
  double loss_scale = 1;
  double clip = 0;
  int64_t valid_tokens = 0;        // of the global batch
  bool continues = false;          // evaluation: adds to the sums of the step before
  std::vector<nn::Batch> batches;  // views into the step's inputs, one per micro-batch
};

// What an executor works on; all of it must outlive the executor.
struct ExecutorParts {
  const nn::LayerList& model;
  const UnitTable& units;
  const Policy& policy;
  const Program &program, &evaluation;
  const StateStore& store;
  nn::BatchShape shape;
  comm::Mesh mesh;
  int threads = 1;  // of the compute stream on a CPU
  Device device;
  Timing timing = Timing::none;  // Timing every step rules out graphs
};

// Host memory for states. For a GPU it is pinned; on a CPU other ranks can read it, like memory of the
// device.
Allocator host_allocator(comm::World& world, Device device);

// Books what an Executor allocates: regions, sums, losses, scratch of the streams.
void book_executor(const ExecutorParts& parts, Ledger& ledger);

class Executor {
 public:
  // Steps that may be in the queue at once.
  static constexpr int kDepth = 2;

  // Collective.
  Executor(const ExecutorParts& parts, comm::World& world, Ledger& ledger);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Queues one step. `inputs` is read during the call only; what its views point to must stay until the step
  // is done.
  void launch(const StepInputs& inputs);
  // The same with the evaluation program. The outcome covers all steps since the last one without
  // `continues`, that one included.
  void launch_evaluation(const StepInputs& inputs);
  // The state is being read: updates of later steps wait for `event`, and are queued after `until_read` has
  // returned.
  void hold_updates(const Event& event, std::function<void()> until_read) {
    state_read_ = event;
    until_read_ = std::move(until_read);
  }
  // Waits for the oldest step that was not waited for and returns its outcome. Throws the first error of any
  // lane; an error of a lane that moves states may come as late as the next launch() or settle().
  StepOutcome wait();

  StreamRef compute() const { return stream(Lane::compute); }
  // Blocks until every lane is idle, so that the state is that after all launched steps. Throws the first
  // error.
  void settle() const;
  // The same for what is queued on `stream` later.
  void settle_on(StreamRef stream) const;
  // Calls body with each pool of regions in this tier.
  template <class Body>
  void for_pools(Tier tier, const Body& body) const {
    for (const Buffer& pool : pools_[size_t(tier)]) body(pool);
  }
  comm::Traffic traffic() const;
  // Times of the last step that was timed by instruction, empty if none was. All steps must have been waited
  // for.
  std::vector<InstructionTime> times() const;
  // How the compute lane spent the step waited for last; nothing if it was not timed.
  std::optional<StepTimes> step_times() const { return step_times_; }
  // How long it was idle for each instruction, over the timed steps so far, in milliseconds.
  std::span<const double> waited_for() const { return clock_.waited_for(); }
  SparseRows& sparse_rows() { return sparse_rows_; }

 private:
  void add_lane(Lane lane);
  StreamRef stream(Lane lane) const { return *streams_[size_t(lane)]; }
  // A step being queued.
  struct Step {
    int64_t number = 0;    // counts launched steps
    bool carries = false;  // follows one of the same program
    int marks = StepClock::kNone;
    std::shared_ptr<const StepInputs> inputs;
  };
  static int slot_of(const Step& step) { return int(step.number % kDepth); }
  Step start_step(const Program& program, const StepInputs& inputs);
  void guard(const std::function<void()>& body);
  void queue(const Step& step, size_t begin, size_t end);
  void post(Lane lane, std::function<void()> task);  // on the thread that queues the lane
  bool queue_lanes(const Step& step, size_t begin, size_t end, const std::function<bool(Lane)>& mine);
  void hold(const Event& event);
  void finish_step(const Step& step);
  // Waits until every lane of the first `steps` steps has been queued.
  void await_queues(int64_t steps) const;
  void drain() const { await_queues(launched_); }
  bool replayable(const Step& step);
  StepSums* sums() const { return reinterpret_cast<StepSums*>(sums_.data()); }
  StepOutcome* result_slot(const Step& step) const {  // on the host
    return reinterpret_cast<StepOutcome*>(results_.data()) + slot_of(step);
  }
  StepOutcome* outcome() const { return reinterpret_cast<StepOutcome*>(outcome_.data()); }

  void dispatch(const Instruction& in, StreamRef stream, const Step& step);
  // The run of one instruction on its stream.
  struct Turn {
    const Instruction& in;
    StreamRef stream;
    const Step& step;
    const StepInputs& inputs() const { return *step.inputs; }
  };
  void run(const Start& op, const Turn& turn);
  void run(const Read& op, const Turn& turn);
  void run(const Fetch& op, const Turn& turn);
  void run(const Store& op, const Turn& turn);
  void run(const Write& op, const Turn& turn);
  void run(const GradsToHost& op, const Turn& turn);
  void run(const Encode& op, const Turn& turn);
  void run(const Gather& op, const Turn& turn);
  void run(const Decode& op, const Turn& turn);
  void run(const ZeroGrads& op, const Turn& turn);
  void run(const Forward& op, const Turn& turn);
  void run(const Recompute& op, const Turn& turn) { run(op.forward, turn); }
  void run(const Loss& op, const Turn& turn);
  void run(const Backward& op, const Turn& turn);
  void run(const Exchange& op, const Turn& turn);
  void run(const AddGrads& op, const Turn& turn);
  void run(const Reduce& op, const Turn& turn);
  void run_coded(const Reduce& op, const Turn& turn);
  void run(const GatherSums& op, const Turn& turn);
  void run(const ReduceRows& op, const Turn& turn);
  void run(const Send& op, const Turn& turn);
  void run(const Receive& op, const Turn& turn);
  void run(const SumLosses& op, const Turn& turn);
  void run(const Scan& op, const Turn& turn);
  void run(const Norm& op, const Turn& turn);
  void run(const Update& op, const Turn& turn);
  void run(const Finish& op, const Turn& turn);
  void publish(const Fetch& op, StreamRef stream);
  // Calls body(device, host, bytes) for each range that a move between device and host copies.
  template <class Body>
  void for_stretches(const Payload& payload, RegionId on_device, RegionId on_host, const Body& body) const;
  size_t chunk_offset(State state, int chunk, const Partition::Piece& piece) const;

  std::byte* region(RegionId id) const;
  Tensor bytes_of(RegionId id) const;
  Tensor activation(RegionId id) const;
  std::byte* whole_grads(const Binding& binding) const;
  std::vector<Tensor> views(int layer, const std::vector<Binding>& bindings, State state) const;
  std::vector<Tensor> owned_grads(int group, RegionId region) const;
  std::byte* grads_at(const ChunkRange& range, const Partition::Chunk& chunk, const Partition::Piece& piece,
                      bool whole) const;
  template <class Kind>
  comm::Communicator& communicator(const Kind& op) {
    return *communicators_.at({Kind::comm_lane, op.over});
  }

  ExecutorParts parts_;
  int rank_;
  const Program* running_ = nullptr;  // the program of the step queued last
  std::map<CommUse, std::unique_ptr<comm::Communicator>> communicators_;
  std::array<std::array<Buffer, kPurposes>, kTiers.size()> pools_;  // by tier and purpose
  Buffer scratch_, sums_, losses_, hits_, outcome_, results_;
  SparseRows sparse_rows_;
  int lanes_ = 0;  // in use
  StepClock clock_;
  std::optional<StepTimes> step_times_;
  // For the lanes in use. Declared after what queued work writes to, so that they are drained first.
  std::array<std::optional<Stream>, kLanes> streams_;
  size_t length_;  // of the longer program
  // Events by instruction, for the last steps: a thread that queues a lane may be a step behind, and waits
  // for events of the step before that.
  static constexpr int kEventSets = 3;
  std::array<std::vector<Event>, kEventSets> events_;
  // A step is over when these lanes are done with it; lanes that store states may still be running.
  static constexpr std::array kLanesOfSteps{Lane::compute, Lane::gather, Lane::reduce, Lane::joint};
  std::array<Event, kLanes> lane_ends_;  // of these, in the last step
  std::array<Event, kDepth> step_ends_;
  Event state_read_;
  std::function<void()> until_read_;
  int64_t launched_ = 0, waited_ = 0;
  size_t constant_end_ = 0;  // instructions before it do not depend on learning rate, clipping or loss scale
  Graph graph_;
  std::vector<double> graph_key_;  // what the recorded (or last) step depended on
  // Runs of each chunk's owned elements that share one weight decay.
  struct UpdateRun {
    Partition::Piece piece;
    bool decay = true;
    int64_t first_index = 0;  // in the whole model
  };
  std::vector<std::vector<UpdateRun>> update_runs_;
  LaneProgress progress_;
  // The threads that queue lanes that move states. Last, because they use everything else.
  std::array<std::optional<Stream>, kLanes> queues_;
};

}  // namespace zeno::zero
