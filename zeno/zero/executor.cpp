#include "zeno/zero/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

#include "zeno/base/error.h"
#include "zeno/base/math.h"
#include "zeno/device/copy.h"
#include "zeno/kernels/matmul.h"

namespace zeno::zero {
namespace {

int64_t tokens(const ExecutorParts& parts) { return parts.shape.rows() * parts.policy.micro_batches; }
size_t scratch_bytes(const ExecutorParts& parts) {
  const size_t threads = parts.device.kind == Device::Kind::cpu ? size_t(parts.threads) : 1;
  return threads * kernel_scratch_bytes(parts.device.kind);
}
size_t sums_bytes(const ExecutorParts& parts) { return sizeof(StepSums) * size_t(parts.mesh.ranks() + 1); }
size_t losses_bytes(const ExecutorParts& parts) { return sizeof(float) * size_t(tokens(parts)); }
size_t hits_bytes(const ExecutorParts& parts) { return sizeof(int32_t) * size_t(tokens(parts)); }
// Training and evaluation use the same memory in turn.
size_t pool_bytes(const ExecutorParts& parts, Tier tier, int purpose) {
  return std::max(parts.program.pool_bytes[size_t(tier)][size_t(purpose)],
                  parts.evaluation.pool_bytes[size_t(tier)][size_t(purpose)]);
}
constexpr std::array kMemoryTiers{Tier::device, Tier::host};

// The part of a piece that is in a chunk, by the places of the chunk's states.
Partition::Piece within(const StateChunk& chunk, const Partition::Piece& piece, bool whole) {
  const int64_t first = whole ? piece.full : piece.shard;
  const int64_t from = std::max(first, chunk.begin),
                to = std::min(first + piece.count, chunk.begin + chunk.count);
  return {piece.full + from - first, piece.shard + from - first, std::max<int64_t>(0, to - from)};
}

// The owned pieces of a chunk, cut where weight decay changes. Padding belongs to the run before it, because
// it is zero in all states and stays zero.
template <class Run>
std::vector<Run> make_update_runs(const UnitTable& units, const StateStore& store, const StateChunk& chunk,
                                  bool whole) {
  std::vector<Run> runs;
  // Where each parameter begins in the whole model, independent of groups and shards.
  std::vector<int64_t> first(units.params.size() + 1, 0);
  for (size_t p = 0; p < units.params.size(); ++p)
    first[p + 1] = first[p] + round_up(units.params[p].count(), kFlatAlign);
  const int group = chunk.group;
  const auto& tensors = units.groups[group].layout.tensors();
  for (const Partition::Piece& owned : store.owned(group)) {
    const Partition::Piece piece = within(chunk, owned, whole);
    for (size_t t = 0; t < tensors.size(); ++t) {
      const int64_t end = t + 1 < tensors.size() ? tensors[t + 1].offset : units.groups[group].layout.size();
      const int64_t from = std::max(piece.full, tensors[t].offset),
                    to = std::min(piece.full + piece.count, end);
      if (from >= to) continue;
      const bool decay = units.params[tensors[t].id].decay;
      const int64_t index = first[size_t(tensors[t].id)] + from - tensors[t].offset;
      const bool extends =
          !runs.empty() && runs.back().decay == decay &&
          runs.back().first_index + runs.back().piece.count == index &&
          runs.back().piece.full + runs.back().piece.count == from &&
          runs.back().piece.shard + runs.back().piece.count == piece.shard + (from - piece.full);
      if (extends) {
        runs.back().piece.count += to - from;
      } else {
        runs.push_back({{from, piece.shard + (from - piece.full), to - from}, decay, index});
      }
    }
  }
  return runs;
}

bool uses(const ExecutorParts& parts, int lane) {
  return parts.program.uses(Lane(lane)) || parts.evaluation.uses(Lane(lane));
}
// Lanes that move states: they may queue more operations than a GPU accepts at once, and run none of the
// model's computation.
bool brings_states(Lane lane) {
  constexpr std::array kLanesOfStates{Lane::read,  Lane::fetch, Lane::update, Lane::store,
                                      Lane::write, Lane::grads, Lane::host,   Lane::publish};
  return std::find(kLanesOfStates.begin(), kLanesOfStates.end(), lane) != kLanesOfStates.end();
}
int lanes_in_use(const ExecutorParts& parts) {
  int count = 0;
  for (int lane = 0; lane < kLanes; ++lane) count += uses(parts, lane);
  return count;
}

// Makes a communicator for each lane and group that the programs name, in the same order on all ranks.
std::map<CommUse, std::unique_ptr<comm::Communicator>> make_communicators(const ExecutorParts& parts,
                                                                          comm::World& world) {
  std::map<CommUse, std::unique_ptr<comm::Communicator>> communicators;
  for (const Program* program : {&parts.program, &parts.evaluation}) {
    for (const Instruction& in : program->instructions) {
      if (const auto use = comm_use_of(in)) communicators.try_emplace(*use);
    }
  }
  for (auto& [use, communicator] : communicators) {
    const bool all = use.over == parts.mesh.needed(comm::kDataAxes);
    const std::string name = all ? std::string(name_of(use.lane))
                                 : fmt::format("{} over {}", name_of(use.lane), describe(use.over));
    communicator = world.communicator(name, parts.device, parts.mesh.group(world.rank(), use.over),
                                      parts.policy.reduction);
  }
  return communicators;
}

}  // namespace

Allocator host_allocator(comm::World& world, Device device) {
  if (device.kind == Device::Kind::cpu) return world.allocator(device);
  return [device](size_t bytes) { return allocate_pinned(device, bytes); };
}

void book_executor(const ExecutorParts& parts, Ledger& ledger) {
  for (Tier tier : kMemoryTiers) {
    for (int p = 0; p < kPurposes; ++p) ledger.book(tier, Purpose(p), pool_bytes(parts, tier, p));
  }
  ledger.book(Tier::device, Purpose::workspace, scratch_bytes(parts));
  ledger.book(Tier::device, Purpose::staging, sums_bytes(parts));
  ledger.book(Tier::device, Purpose::staging, sizeof(StepOutcome));
  ledger.book(Tier::host, Purpose::staging, sizeof(StepOutcome) * Executor::kDepth);
  ledger.book(Tier::device, Purpose::activations, losses_bytes(parts));
  ledger.book(Tier::device, Purpose::activations, hits_bytes(parts));
  ledger.book(Tier::device, Purpose::staging,
              SparseRows(parts.units, parts.policy, parts.mesh.data_ranks(), tokens(parts)).bytes());
}

Executor::Executor(const ExecutorParts& parts, comm::World& world, Ledger& ledger)
    : parts_(parts),
      rank_(world.rank()),
      communicators_(make_communicators(parts, world)),
      sparse_rows_(parts.units, parts.policy, parts.mesh.data_ranks(), tokens(parts)),
      lanes_(lanes_in_use(parts)),
      clock_(parts.program, {.device = parts.device,
                             .ranks = parts.mesh.ranks(),
                             .lanes = lanes_,
                             .depth = kDepth,
                             .timing = parts.timing}),
      length_(std::max(parts.program.instructions.size(), parts.evaluation.instructions.size())) {
  for (std::vector<Event>& events : events_) events = std::vector<Event>(length_);
  const Allocator shared = world.allocator(parts.device), own = allocator_of(parts.device);
  const auto take = [&](Purpose purpose, size_t bytes, const Allocator& allocator) {
    return Buffer(ledger, Tier::device, purpose, bytes, allocator);
  };
  for (int p = 0; p < kPurposes; ++p) {
    pools_[size_t(Tier::device)][size_t(p)] = take(Purpose(p), pool_bytes(parts, Tier::device, p), shared);
    pools_[size_t(Tier::host)][size_t(p)] =
        Buffer(ledger, Tier::host, Purpose(p), pool_bytes(parts, Tier::host, p),
               host_allocator(world, parts.device));
  }
  scratch_ = take(Purpose::workspace, scratch_bytes(parts), own);
  sums_ = take(Purpose::staging, sums_bytes(parts), shared);
  losses_ = take(Purpose::activations, losses_bytes(parts), own);
  hits_ = take(Purpose::activations, hits_bytes(parts), own);
  outcome_ = take(Purpose::staging, sizeof(StepOutcome), own);
  results_ = Buffer(ledger, Tier::host, Purpose::staging, sizeof(StepOutcome) * kDepth,
                    [&](size_t bytes) { return allocate_pinned(parts.device, bytes); });
  sparse_rows_.allocate(ledger, shared);
  for (const StateChunk& chunk : parts.units.chunks) {
    update_runs_.push_back(
        make_update_runs<UpdateRun>(parts.units, parts.store, chunk, parts.policy.optimizer.empty()));
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    if (uses(parts, lane)) add_lane(Lane(lane));
  }
  const std::vector<Instruction>& list = parts.program.instructions;
  constant_end_ = size_t(std::ranges::find_if(list, &Instruction::is<Norm>) - list.begin());
}

// Lanes of the disk run on the host, whatever the device, and stay near that device.
void Executor::add_lane(Lane lane) {
  const bool on_host = lane == Lane::read || lane == Lane::write || lane == Lane::host;
  StreamOptions options{.device = on_host ? Device{} : parts_.device,
                        .name = std::string(name_of(lane)),
                        .rank = rank_,
                        .near = parts_.device,
                        .cpu_waits = lanes_ > 1};
  if (lane == Lane::compute || lane == Lane::update || lane == Lane::host) options.threads = parts_.threads;
  if (lane == Lane::compute) {
    options.scratch = scratch_.data();
    options.scratch_bytes = kernel_scratch_bytes(parts_.device.kind);
  }
  streams_[size_t(lane)].emplace(std::move(options));
  if (parts_.policy.offload.far_host && brings_states(lane))
    queues_[size_t(lane)].emplace(StreamOptions{
        .device = {}, .name = fmt::format("queue {}", name_of(lane)), .rank = rank_, .near = parts_.device});
}

Executor::~Executor() { progress_.give_up(nullptr); }

void Executor::settle() const {
  drain();
  for (const auto& stream : streams_) {
    if (stream) stream->synchronize();
  }
}

void Executor::settle_on(StreamRef stream) const {
  drain();
  for (const auto& lane : streams_) {
    if (!lane) continue;
    Event idle;
    idle.record(*lane);
    stream.wait(idle);
  }
}

StepOutcome Executor::wait() {
  ensure(waited_ < launched_, "[executor] there is no step to wait for");
  const size_t slot = size_t(waited_++ % kDepth);
  std::exception_ptr error;
  const auto attempt = [&](const auto& body) {
    try {
      body();
    } catch (const Error& e) {
      // Another rank's failure is reported only when nothing failed here.
      if (!error || e.kind() != ErrorKind::peer) error = std::current_exception();
    } catch (...) {
      error = std::current_exception();
    }
  };
  attempt([&] {
    // Streams of a GPU do not carry errors of communication, so poll for them. Poll at the end too, because
    // an aborted collective ends like a successful one.
    const auto ask = [&] {
      for (const auto& [use, communicator] : communicators_) communicator->poll();
    };
    const bool may_fail = parts_.mesh.ranks() > 1 && parts_.device.kind == Device::Kind::cuda;
    while (may_fail && !step_ends_[slot].done()) {
      ask();
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    step_ends_[slot].synchronize();
    ask();
  });
  attempt([&] { progress_.rethrow(); });
  // CPU lanes carry their own errors.
  for (Lane lane : kLanesOfSteps) {
    if (waited_ == launched_ && streams_[size_t(lane)])
      attempt([&] { lane_ends_[size_t(lane)].synchronize(); });
  }
  if (error) std::rethrow_exception(error);
  step_times_ = clock_.read(int(slot));
  return *reinterpret_cast<const StepOutcome*>(results_.data() + slot * sizeof(StepOutcome));
}

comm::Traffic Executor::traffic() const {
  comm::Traffic sum;
  for (const auto& [use, communicator] : communicators_) sum += communicator->traffic();
  return sum;
}

std::vector<InstructionTime> Executor::times() const {
  settle();
  return clock_.times();
}

}  // namespace zeno::zero
