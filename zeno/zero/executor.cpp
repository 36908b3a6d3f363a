#include "zeno/zero/executor.h"

#include <algorithm>
#include <chrono>
#include <exception>

#include "zeno/base/error.h"
#include "zeno/kernels/matmul.h"

namespace zeno::zero {
namespace {

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int64_t tokens(const ExecutorParts& parts) { return parts.shape.rows() * parts.policy.micro_batches; }
size_t scratch_bytes(const ExecutorParts& parts) { return size_t(parts.threads) * kernel_scratch_bytes(); }
size_t sums_bytes(const ExecutorParts& parts) { return sizeof(StepSums) * size_t(parts.world + 1); }
size_t losses_bytes(const ExecutorParts& parts) { return sizeof(float) * size_t(tokens(parts)); }

// The owned pieces of a group, cut where weight decay changes. Padding belongs to the run before it: it is
// zero everywhere and stays so.
template <class Run>
std::vector<Run> make_update_runs(const UnitTable& units, const StateStore& store, int group) {
  std::vector<Run> runs;
  const auto& tensors = units.groups[group].layout.tensors();
  for (const Partition::Piece& piece : store.owned(group)) {
    for (size_t t = 0; t < tensors.size(); ++t) {
      const int64_t end = t + 1 < tensors.size() ? tensors[t + 1].offset : units.groups[group].layout.size();
      const int64_t from = std::max(piece.full, tensors[t].offset),
                    to = std::min(piece.full + piece.count, end);
      if (from >= to) continue;
      const bool decay = units.params[tensors[t].id].decay;
      const bool extends =
          !runs.empty() && runs.back().decay == decay &&
          runs.back().piece.full + runs.back().piece.count == from &&
          runs.back().piece.shard + runs.back().piece.count == piece.shard + (from - piece.full);
      if (extends) {
        runs.back().piece.count += to - from;
      } else {
        runs.push_back({{from, piece.shard + (from - piece.full), to - from}, decay});
      }
    }
  }
  return runs;
}

}  // namespace

void book_executor(const ExecutorParts& parts, Ledger& ledger) {
  for (int p = 0; p < kPurposes; ++p) ledger.book(Tier::device, Purpose(p), parts.program.pool_bytes[p]);
  ledger.book(Tier::device, Purpose::workspace, scratch_bytes(parts));
  ledger.book(Tier::device, Purpose::staging, sums_bytes(parts));
  ledger.book(Tier::device, Purpose::activations, losses_bytes(parts));
  ledger.book(Tier::device, Purpose::staging,
              SparseRows(parts.units, parts.policy, parts.world, tokens(parts)).bytes());
}

Executor::Executor(const ExecutorParts& parts, comm::World& world, Ledger& ledger)
    : parts_(parts),
      rank_(world.rank()),
      gathers_(world.communicator("gather")),
      reduces_(world.communicator("reduce")),
      events_(parts.program.instructions.size()),
      times_(parts.program.instructions.size()),
      sparse_rows_(parts.units, parts.policy, parts.world, tokens(parts)) {
  const Allocator shared = world.allocator();
  for (int p = 0; p < kPurposes; ++p) {
    pools_[p] = Buffer(ledger, Tier::device, Purpose(p), parts.program.pool_bytes[p], shared);
  }
  scratch_ = Buffer(ledger, Tier::device, Purpose::workspace, scratch_bytes(parts));
  sums_ = Buffer(ledger, Tier::device, Purpose::staging, sums_bytes(parts), shared);
  losses_ = Buffer(ledger, Tier::device, Purpose::activations, losses_bytes(parts));
  sparse_rows_.allocate(ledger, shared);
  for (int g = 0; g < int(parts.units.groups.size()); ++g) {
    update_runs_.push_back(make_update_runs<UpdateRun>(parts.units, parts.store, g));
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    StreamOptions options{.name = std::string(name_of(Lane(lane))), .rank = rank_};
    if (Lane(lane) == Lane::compute) {
      options.threads = parts.threads;
      options.scratch = scratch_.data();
      options.scratch_bytes = kernel_scratch_bytes();
    }
    streams_.emplace_back(std::move(options));
  }
}

StepOutcome Executor::run(const StepInputs& inputs) {
  *reinterpret_cast<StepSums*>(sums_.data()) = StepSums{};
  const std::vector<Instruction>& list = parts_.program.instructions;
  for (size_t i = 0; i < list.size(); ++i) {
    const StreamRef stream = streams_[int(list[i].lane)];
    InstructionTime* time = &times_[i];
    if (!list[i].waits.empty()) {
      stream.launch([time](Workers&) { time->ready = now_us(); });
      for (int wait : list[i].waits) stream.wait(events_[wait]);
      stream.launch([time](Workers&) { time->start = now_us(); });
    } else {
      stream.launch([time](Workers&) { time->ready = time->start = now_us(); });
    }
    dispatch(list[i], stream, inputs);
    stream.launch([time](Workers&) { time->end = now_us(); });
    if (list[i].signals) events_[i].record(stream);
  }
  std::exception_ptr error;
  for (const Stream& stream : streams_) {
    try {
      stream.synchronize();
    } catch (const Error& e) {
      // Another rank's failure is reported only when nothing failed here.
      if (!error || e.kind() != ErrorKind::peer) error = std::current_exception();
    } catch (...) {
      error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
  return outcome_;
}

comm::Traffic Executor::traffic() const {
  const comm::Traffic a = gathers_->traffic(), b = reduces_->traffic();
  return {a.gathered + b.gathered, a.reduced + b.reduced, a.exchanged + b.exchanged, a.calls + b.calls};
}

double Executor::exposed_ms() const {
  double us = 0;
  for (size_t i = 0; i < times_.size(); ++i) {
    if (parts_.program.instructions[i].lane == Lane::compute) us += times_[i].start - times_[i].ready;
  }
  return us / 1000;
}

}  // namespace zeno::zero
