// The ZeRO engine of one rank. It compiles a model, a policy and a mesh into a step program, and owns the
// state that the program works on and the executor that runs it. All sizes are known before anything is
// allocated; nothing is allocated after construction. Calls marked collective must be made by all ranks in
// the same order. Thread rule: one thread per engine.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "zeno/comm/world.h"
#include "zeno/zero/executor.h"
#include "zeno/zero/snapshot.h"

namespace zeno::zero {

struct EngineOptions {
  Policy policy;
  comm::Mesh mesh;       // of all ranks
  nn::BatchShape shape;  // of one micro-batch; shape.device is set from `device`
  Device device;         // of this rank
  int threads = 0;       // for the compute stream on a CPU; 0: this rank's share of the cores
  // Which steps are timed by instruction. Default: every step on a CPU, a sample of them on a GPU.
  std::optional<Timing> timing;
  size_t memory_limit = 0;  // bytes this rank may use; 0: no limit
  // Elements per piece of a copy of masters and moments in host memory; 0: no room for a copy.
  int64_t snapshot_piece = 0;
  // Further copies that the caller keeps in host memory; the engine books them.
  int snapshot_copies = 0;
  // Where to put states that the policy keeps on disk; the engine adds the rank to `name`.
  DiskOptions disk;
};

// What a rank will run. The engine, its memory plan and the time planner all start from this.
struct CompiledStep {
  Policy policy;  // normalized
  comm::Mesh mesh;
  nn::BatchShape shape;
  UnitTable units;
  Program program;
  CompileInput input(const nn::LayerList& model) const { return {model, units, policy, mesh, shape}; }
};
CompiledStep compile_step(const nn::LayerList& model, const EngineOptions& options, int rank = 0);

// The bytes of a rank by purpose, without allocating them. The engine books with the same code.
struct MemoryPlan {
  std::unique_ptr<Ledger> ledger;
  size_t model_state_bytes = 0;               // parameters + gradients + masters + moments
  int64_t elements = 0;                       // of the parameters that its stage uses, without padding
  int64_t updated = 0;                        // of them, those that the rank updates, with padding
  std::array<Stage, kTiers.size()> stages{};  // whose bytes those of a tier are
};
// Of one rank.
MemoryPlan plan_memory(const nn::LayerList& model, const EngineOptions& options, int rank);
// Of a rank of each stage of the pipeline: those of a stage do not differ.
std::vector<MemoryPlan> plan_stages(const nn::LayerList& model, const EngineOptions& options);
// Of any rank: each tier as it is in the stage that needs most of it, and the most model states.
MemoryPlan plan_memory(const nn::LayerList& model, const EngineOptions& options);

using TierBytes = std::array<size_t, kTiers.size()>;
// For each tier the stage that needs most of it, of several with their bytes. On a CPU, the device's memory
// is the host's: one stage for both.
std::array<int, kTiers.size()> neediest_stages(Device::Kind kind, std::span<const TierBytes> stages);

// One micro-batch on the host. Every array has B·T entries, except valid_rows, and doc_start, which has an
// entry for each token of the whole sequences, or is empty (every sequence is one document). Where ranks
// share sequences, the r-th of them has tokens [r·T, (r+1)·T) of each.
struct MicroBatch {
  std::span<const int32_t> tokens, targets, positions, doc_start;
  std::span<const int32_t> valid_rows;  // rows whose target counts, in order
  int64_t inputs = 0;                   // rows that are not padding; only counted
};

// What a rank requests after a step; ranks tell each other in the step's exchange.
struct Wishes {
  bool stop = false, save = false;
  bool busy = false;  // a copy of the state is still being written: do not take another yet
};

// How a rank spent a step, in milliseconds; all but `data` are zero if the step was not timed. Ranks tell
// each other in the next step's exchange, so that all know which rank is slow.
struct RankTimes {
  float compute = 0, communication = 0, link = 0, disk = 0, other = 0;  // as in StepTimes
  float data = 0;                                                       // waiting for the batch

  // The time that other ranks have to wait for.
  float own() const { return compute + link + disk + other + data; }
};

struct StepControl {
  OptimizerHyper hyper;
  double loss_scale = 1;
  double clip = 0;  // global norm; 0: none
  Wishes wishes;
  RankTimes spent;  // by this rank on an earlier step
};

struct StepResult {
  double loss = 0;         // mean over the valid tokens of all micro-batches and ranks
  double grad_norm = 0;    // before clipping
  int64_t tokens = 0;      // valid tokens of the global batch
  int64_t inputs = 0;      // tokens of the global batch that are not padding
  bool skipped = false;    // gradients were not finite: no update
  std::string bad_tensor;  // the first tensor with a non-finite gradient, and the rank that found it
  int bad_rank = -1;
  std::optional<StepTimes> times;  // of this rank, if the step was timed
  comm::Traffic traffic;           // of this step
};

// The result of an evaluation. It is the same on every rank, and for every world size with the same
// micro-batches.
struct EvalResult {
  double loss = 0;     // mean over all valid tokens
  int64_t tokens = 0;  // valid ones
  int64_t hits = 0;    // valid tokens to which the model gives the highest probability
  double accuracy() const { return tokens > 0 ? double(hits) / double(tokens) : 0; }
};

// Values as a file stores them, at any address. They are converted in place, so the memory is overwritten.
struct StoredValues {
  DType dtype = DType::f32;
  std::span<std::byte> bytes;
  int64_t count() const { return int64_t(bytes.size() / size_of(dtype)); }
};

class Engine {
 public:
  // Collective. The mesh of the options must have as many ranks as the world.
  Engine(nn::LayerList model, const EngineOptions& options, comm::World& world);
  ~Engine();

  // Fills parameters: `read` gives elements [begin, begin + out.size()) of a parameter. It is called only for
  // what this rank keeps, from several threads.
  using ValueReader = std::function<void(const nn::Parameter& param, int64_t begin, std::span<float> out)>;
  void load(const ValueReader& read);

  // Collective: submit(), then collect().
  StepResult step(std::span<const MicroBatch> batches, const StepControl& control);
  // Collective: queues a step. The batches are copied before it returns. Returns on all ranks what any of
  // them requested.
  Wishes submit(std::span<const MicroBatch> batches, const StepControl& control);
  // Collective: the result of the oldest step that was not collected. At most Executor::kDepth steps may be
  // in progress; with two, the host prepares one while the device runs the other.
  StepResult collect();

  // Gives this rank's micro-batches for a round of evaluation: as many as a step has. A rank that has less
  // data than others gives micro-batches without valid rows.
  using BatchReader = std::function<std::vector<MicroBatch>(int64_t round)>;
  // Collective: loss and accuracy over `rounds` rounds, forward only; no state changes. No step may be in
  // progress. Ends early and returns nothing when `stop` returns true on any rank (called once per round).
  std::optional<EvalResult> evaluate(int64_t rounds, const BatchReader& batches,
                                     const std::function<bool()>& stop = {});

  // Collective: every rank gets elements [begin, begin + out.size()) of one state of a parameter.
  void read(State state, int param, int64_t begin, std::span<float> out);
  // Each rank writes what it keeps of elements [begin, begin + values.size()). Writing masters also writes
  // the compute copy.
  void write(State state, int param, int64_t begin, std::span<const float> values);

  // A range of one state of a parameter that this rank keeps.
  struct StateRun {
    State state = State::master;
    int param = 0;
    int64_t begin = 0, count = 0;  // in the parameter
    Partition::Piece piece;        // in the group
  };
  struct Loading {
    std::vector<StateRun> runs;  // all masters and moments, the states of a range one after the other
    // Stores elements of a run, from `begin` on; masters fill the compute copy too. Several threads may call
    // it at once.
    std::function<void(const StateRun& run, int64_t begin, StoredValues values)> place;
    // Some states are kept on disk: call place() from one thread at a time, in the order of runs.
    bool in_order = false;
    int cores = 1;  // of this rank
  };
  // Fills all masters and moments that this rank keeps: `read` places every element of every run.
  void load_states(const std::function<void(const Loading&)>& read);

  // Takes this rank's masters and moments as they are after all submitted steps: begins to copy them to host
  // memory or, where they are offloaded, holds the next update until snapshot().release(). The previous
  // snapshot must no longer be in use.
  void take_snapshot();
  Snapshot& snapshot() { return *snapshot_; }
  const Snapshot& snapshot() const { return *snapshot_; }
  // Collective: hash of all masters in table order, independent of world size and sharding.
  uint64_t weights_hash();

  const Policy& policy() const { return policy_; }
  const comm::Mesh& mesh() const { return mesh_; }
  const UnitTable& units() const { return units_; }
  const Program& program() const { return program_; }
  const Program& evaluation_program() const { return evaluation_; }
  const Ledger& ledger() const { return ledger_; }
  const StateStore& store() const { return store_; }
  const Executor& executor() const { return *executor_; }
  // The times of every rank, as exchanged in the last submit().
  std::span<const RankTimes> rank_times() const { return rank_times_; }
  nn::BatchShape shape() const { return shape_; }

 private:
  // A range of a parameter that one rank keeps, and where.
  struct Run {
    int64_t begin = 0, count = 0;  // in the parameter
    Partition::Piece piece;        // in the group
  };
  void warm_up();
  comm::Traffic traffic_since_last();
  template <class Put>
  void read_ahead(const std::vector<std::pair<int, Run>>& all, const ValueReader& read, const Put& put);
  // Reads and writes values that this rank keeps. Blocking.
  std::vector<float> fetch(State state, int group, const Run& run);
  std::vector<float> fetch_nf4(int group, const Run& run);
  void put(State state, int group, const Partition::Piece& piece, std::span<const float> values);
  void put(State state, int group, const Partition::Piece& piece, StoredValues& values);
  void place(const StateRun& run, int64_t begin, StoredValues values);
  std::vector<StateRun> state_runs() const;
  // Cuts what is sharded over `axes` into runs that need little host memory each.
  std::vector<Run> runs(int param, int64_t begin, int64_t end, int rank, comm::Axes axes) const;
  // The runs that a rank hashes and reads for all.
  std::vector<Run> saved_runs(int param, int64_t begin, int64_t end, int rank) const;
  // The runs of a parameter or its states that this rank writes.
  std::vector<Run> written_runs(int param, int64_t begin, int64_t end) const;
  void upload(std::span<const MicroBatch> batches, std::optional<int64_t> step = {});
  Wishes agree_on_batch(std::span<const MicroBatch> batches, const StepControl& control);
  // The index of this rank among those that see different data.
  int data_place() const { return mesh_.place(world_.rank(), comm::kDataAxes); }
  // Of the pipeline stages that use a group, the first saves it.
  bool saved_by(int rank, int group) const {
    return mesh_.coordinate(rank, comm::Axis::pipe) == units_.groups[size_t(group)].stage;
  }
  StepOutcome wait();
  std::string tensor_at(GradPlace place) const;
  void refresh_params(int param, int64_t begin, int64_t end);

  comm::World& world_;
  nn::LayerList model_;
  comm::Mesh mesh_;
  Policy policy_;
  nn::BatchShape shape_;
  UnitTable units_;
  Program program_, evaluation_;
  StateStore store_;
  Ledger ledger_;
  Buffer inputs_, input_slots_;  // on the device, and on the host: one for each step in progress
  std::array<Event, Executor::kDepth> uploaded_;
  std::unique_ptr<Executor> executor_;  // after what it works on: destroyed first
  std::optional<Snapshot> snapshot_;
  std::optional<Stream> snapshot_stream_;
  Event snapshot_taken_;
  StepInputs step_;
  struct UnderWay {
    int64_t tokens = 0;                    // valid ones
    int64_t inputs = 0;                    // tokens that are not padding
    std::optional<comm::Traffic> traffic;  // on a GPU, where it is known once the step is queued
  };
  std::deque<UnderWay> under_way_;
  int64_t submitted_ = 0;
  int64_t agreed_inputs_ = 0;  // of the step being queued
  std::vector<RankTimes> rank_times_;
  comm::Traffic traffic_;
};

}  // namespace zeno::zero
