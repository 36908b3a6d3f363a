#include "zeno/zero/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "zeno/base/error.h"
#include "zeno/base/host.h"
#include "zeno/base/math.h"
#include "zeno/base/rng.h"
#include "zeno/device/copy.h"
#include "zeno/device/device.h"
#include "zeno/zero/program/program_check.h"
#include "zeno/zero/program/program_match.h"

namespace zeno::zero {
namespace {

constexpr int kInputArrays = 4;  // tokens, targets, positions, valid_rows; doc_start is extra

// The key of each micro-batch's noise, before the arrays.
size_t noise_bytes(const Policy& policy) {
  return round_up<size_t>(sizeof(uint64_t) * size_t(policy.micro_batches), 64);
}

size_t input_bytes(const Policy& policy, nn::BatchShape shape) {
  const int64_t values = shape.rows() * (kInputArrays + shape.context);
  return noise_bytes(policy) + sizeof(int32_t) * size_t(values * policy.micro_batches);
}

// A document starts at every sequence and wherever doc_start changes.
int64_t count_documents(std::span<const int32_t> doc_start, int64_t seq) {
  int64_t count = 0;
  for (size_t i = 0; i < doc_start.size(); ++i) {
    count += int64_t(i) % seq == 0 || doc_start[i] != doc_start[i - 1];
  }
  return count;
}

size_t library_bytes(Device::Kind kind) {
  const LibraryMemory memory = library_memory(kind);
  return memory.context + memory.later;
}

// The staging where slices of a reduction between GPUs wait to be summed; comm allocates it at the first
// reduction. Threads that can read each other's memory need none, but a plan cannot know that, so it is
// always counted.
size_t comm_bytes(Device::Kind kind, const comm::Mesh& mesh, const Program& program) {
  if (kind != Device::Kind::cuda || mesh.ranks() == 1) return 0;
  std::set<comm::Axes> groups;
  for (const Instruction& in : program.instructions) {
    if (const Reduce* reduce = in.as<Reduce>()) groups.insert(reduce->over);
  }
  return std::max<size_t>(1, groups.size()) * comm::WorldOptions{}.device_staging_bytes;
}

// Books everything a rank will hold, for plan and run alike.
void book_all(const ExecutorParts& parts, Ledger& ledger) {
  parts.store.book(ledger);
  book_executor(parts, ledger);
  const size_t inputs = input_bytes(parts.policy, parts.shape);
  ledger.book(Tier::device, Purpose::inputs, inputs);
  ledger.book(Tier::host, Purpose::inputs, inputs * Executor::kDepth);
  ledger.book(Tier::device, Purpose::workspace, parts.model.table_bytes);
  ledger.book(Tier::device, Purpose::libraries, library_bytes(parts.device.kind));
  ledger.book(Tier::device, Purpose::staging, comm_bytes(parts.device.kind, parts.mesh, parts.program));
}

nn::BatchShape shape_of(const EngineOptions& options) {
  nn::BatchShape shape = options.shape;
  shape.device = options.device.kind;
  shape.deterministic = options.policy.deterministic || options.policy.reproducible;
  shape.fp8 = options.policy.fp8;
  shape.context = options.mesh.size(comm::Axis::context);
  const bool bf16_on_gpu = shape.device == Device::Kind::cuda && options.policy.compute == DType::bf16;
  // Only with one rank: a concurrent collective would occupy a multiprocessor that tiles of the fused matmul
  // wait for. Reproducible runs use the same kernels at every world size, so they do not fuse.
  shape.fused_swiglu = bf16_on_gpu && options.mesh.ranks() == 1 && !options.policy.reproducible;
  require(!shape.fp8 || bf16_on_gpu, ErrorKind::usage,
          "[engine] fp8 matmuls: got {} on a {}, expected bf16 on a GPU; use --device cuda --dtype bf16, or "
          "leave out --matmul-dtype fp8",
          name_of(options.policy.compute), shape.device == Device::Kind::cuda ? "GPU" : "CPU");
  return shape;
}

Policy policy_of(const EngineOptions& options) {
  Policy policy = normalized(options.policy, options.mesh);
  policy.offload.far_host |= options.device.kind == Device::Kind::cuda;
  const bool by_mpi = policy.reduction == comm::Reduction::native && options.device.kind == Device::Kind::cpu;
  const DType sent = policy.wire != DType::f32 ? policy.wire : policy.grad;
  require(
      !by_mpi || options.mesh.ranks() == 1 || sent == DType::f32, ErrorKind::usage,
      "[engine] native reductions on CPUs: got gradients in {}, expected fp32, as MPI has no floats of 16 "
      "bits; leave out communication_data_type and grad_accum_dtype, or --reduction native",
      name_of(sent));
  return policy;
}

const comm::Mesh& mesh_for(const EngineOptions& options, const comm::World& world) {
  require(options.mesh.ranks() == world.size(), ErrorKind::usage,
          "[engine] got a mesh of {} ranks in a world of {}, expected the same number; make it with "
          "comm::mesh_of",
          options.mesh.ranks(), world.size());
  return options.mesh;
}

UnitTable units_of(const nn::LayerList& model, const Policy& policy, const comm::Mesh& mesh,
                   nn::BatchShape shape, int rank) {
  const std::vector<Stage> stages = cut_stages(model, shape, policy.compute, mesh.size(comm::Axis::pipe));
  return make_units(model, policy, mesh, stages, mesh.coordinate(rank, comm::Axis::pipe));
}

int64_t elements_here(const UnitTable& units) {
  int64_t sum = 0;
  for (size_t i = 0; i < units.params.size(); ++i)
    sum += units.groups[size_t(units.places[i].group)].here ? units.params[i].count() : 0;
  return sum;
}

int64_t elements_updated(const UnitTable& units) {
  int64_t sum = 0;
  for (const StateChunk& chunk : units.chunks)
    sum += units.groups[size_t(chunk.group)].trainable ? chunk.count : 0;
  return sum;
}

// Offloaded states are not copied again, unless the caller keeps copies.
Snapshot::Mode snapshot_mode(const EngineOptions& options, const UnitTable& units) {
  const auto any = [&](auto&& where) { return std::ranges::any_of(units.chunks, where, &StateChunk::tier); };
  const bool away = any([](Tier tier) { return tier != Tier::device; });
  const bool on_disk = any([](Tier tier) { return tier == Tier::disk; });
  const bool coded = options.policy.moments == DType::u8;
  require(options.snapshot_copies == 0 || (!on_disk && !coded), ErrorKind::usage,
          "[engine] --peer-snapshot: got optimizer states {}, expected them in memory and in floats; use "
          "--save-every, or {}",
          on_disk ? "on disk" : "in 8 bits",
          on_disk ? "keep them on the host with --offload-optimizer cpu" : "leave out --moment-dtype 8bit");
  return (away || coded) && options.snapshot_copies == 0 ? Snapshot::Mode::streamed : Snapshot::Mode::copied;
}

}  // namespace

CompiledStep compile_step(const nn::LayerList& model, const EngineOptions& options, int rank) {
  CompiledStep step{.policy = policy_of(options), .mesh = options.mesh, .shape = shape_of(options)};
  step.units = units_of(model, step.policy, step.mesh, step.shape, rank);
  step.program = compile(step.input(model));
  return step;
}

MemoryPlan plan_memory(const nn::LayerList& model, const EngineOptions& options, int rank) {
  const CompiledStep step = compile_step(model, options, rank);
  const auto& [policy, mesh, shape, units, program] = step;
  const Program evaluation = compile_evaluation(step.input(model));
  const StateStore store(units, policy, rank);
  MemoryPlan plan{std::make_unique<Ledger>(), store.model_state_bytes(), elements_here(units),
                  elements_updated(units)};
  plan.stages.fill(units.stage);
  const int threads = options.threads > 0 ? options.threads : share_of_cores(mesh.ranks());
  book_all({model, units, policy, program, evaluation, store, shape, mesh, threads, options.device},
           *plan.ledger);
  if (options.snapshot_piece > 0)
    Snapshot(units, store, rank, options.snapshot_piece, snapshot_mode(options, units))
        .book(*plan.ledger, options.snapshot_copies);
  return plan;
}

std::vector<MemoryPlan> plan_stages(const nn::LayerList& model, const EngineOptions& options) {
  std::vector<MemoryPlan> plans;
  for (const int rank : options.mesh.group(0, {comm::Axis::pipe}))
    plans.push_back(plan_memory(model, options, rank));
  return plans;
}

MemoryPlan plan_memory(const nn::LayerList& model, const EngineOptions& options) {
  std::vector<MemoryPlan> stages = plan_stages(model, options);
  if (stages.size() == 1) return std::move(stages.front());
  std::vector<TierBytes> bytes(stages.size());
  MemoryPlan most{std::make_unique<Ledger>()};
  for (size_t i = 0; i < stages.size(); ++i) {
    for (const Tier tier : kTiers) bytes[i][size_t(tier)] = stages[i].ledger->booked(tier);
    most.model_state_bytes = std::max(most.model_state_bytes, stages[i].model_state_bytes);
    most.elements = std::max(most.elements, stages[i].elements);
    most.updated = std::max(most.updated, stages[i].updated);
  }
  const auto neediest = neediest_stages(options.device.kind, bytes);
  for (const Tier tier : kTiers) {
    const MemoryPlan& stage = stages[size_t(neediest[size_t(tier)])];
    most.stages[size_t(tier)] = stage.stages[size_t(tier)];
    for (int p = 0; p < kPurposes; ++p)
      most.ledger->book(tier, Purpose(p), stage.ledger->booked(tier, Purpose(p)));
  }
  return most;
}

std::array<int, kTiers.size()> neediest_stages(Device::Kind kind, std::span<const TierBytes> stages) {
  const auto most = [&](auto&& bytes) {
    return int(std::ranges::max_element(stages, {}, bytes) - stages.begin());
  };
  std::array<int, kTiers.size()> neediest{};
  for (const Tier tier : kTiers)
    neediest[size_t(tier)] = most([&](const TierBytes& b) { return b[size_t(tier)]; });
  if (kind == Device::Kind::cpu) {
    const int both = most([](const TierBytes& b) { return b[size_t(Tier::device)] + b[size_t(Tier::host)]; });
    neediest[size_t(Tier::device)] = neediest[size_t(Tier::host)] = both;
  }
  return neediest;
}

Engine::Engine(nn::LayerList model, const EngineOptions& options, comm::World& world)
    : world_(world),
      model_(std::move(model)),
      mesh_(mesh_for(options, world)),
      policy_(policy_of(options)),
      shape_(shape_of(options)),
      units_(units_of(model_, policy_, mesh_, shape_, world.rank())),
      program_(compile({model_, units_, policy_, mesh_, shape_})),
      evaluation_(compile_evaluation({model_, units_, policy_, mesh_, shape_})),
      store_(units_, policy_, world.rank()) {
  for (const Program* program : {&program_, &evaluation_}) {
    check_program(*program, units_);
    match_programs(world, mesh_, communications_of(*program, units_));
  }
  const int threads = options.threads > 0 ? options.threads : share_of_cores(world.local_size());
  const Timing usual = options.device.kind == Device::Kind::cpu ? Timing::every : Timing::sampled;
  const Timing timing = policy_.trains ? options.timing.value_or(usual) : Timing::none;
  const ExecutorParts parts{model_, units_, policy_, program_,       evaluation_, store_,
                            shape_, mesh_,  threads, options.device, timing};
  book_all(parts, ledger_);
  if (options.snapshot_piece > 0) {
    snapshot_.emplace(units_, store_, world.rank(), options.snapshot_piece, snapshot_mode(options, units_));
    snapshot_->book(ledger_, options.snapshot_copies);
  }
  require(options.memory_limit == 0 || ledger_.booked(Tier::device) <= options.memory_limit,
          ErrorKind::memory, "[plan] this rank needs {} and may use {}",
          format_bytes(ledger_.booked(Tier::device)), format_bytes(options.memory_limit));
  executor_ = std::make_unique<Executor>(parts, world, ledger_);
  DiskOptions disk = options.disk;
  disk.name += fmt::format("rank{}", world.rank());
  store_.allocate(ledger_, {world.allocator(options.device), host_allocator(world, options.device)}, disk,
                  snapshot_ ? snapshot_->layout() : StateStore::DiskLayout{});
  executor_->for_pools(Tier::host, [&](const Buffer& pool) {
    store_.register_memory({pool.data(), pool.bytes()});
  });
  const size_t bytes = input_bytes(policy_, shape_);
  inputs_ = Buffer(ledger_, Tier::device, Purpose::inputs, bytes, allocator_of(options.device));
  input_slots_ = Buffer(ledger_, Tier::host, Purpose::inputs, bytes * Executor::kDepth,
                        [&](size_t n) { return allocate_pinned(options.device, n); });
  ledger_.take(Tier::device, Purpose::workspace, model_.table_bytes);
  ledger_.take(Tier::device, Purpose::libraries, library_bytes(options.device.kind));
  ledger_.take(Tier::device, Purpose::staging, comm_bytes(options.device.kind, mesh_, program_));
  if (snapshot_) {
    snapshot_->allocate(ledger_, options.device);
    ledger_.take(Tier::host, Purpose::staging, snapshot_->size() * size_t(options.snapshot_copies));
    // Lanes of the host wait for the copy as well.
    snapshot_stream_.emplace(
        StreamOptions{.device = options.device, .name = "snapshot", .rank = world.rank(), .cpu_waits = true});
  }
  if (options.device.kind == Device::Kind::cuda) warm_up();
  store_.clear(executor_->compute());
}

Engine::~Engine() {
  if (snapshot_) snapshot_->release();  // frees updates that are still held
}

// With a step number, each batch gets its own noise: a function of (seed, step, logical id), so that it is
// the same at every world size that cuts the global batch into the same micro-batches.
void Engine::upload(std::span<const MicroBatch> batches, std::optional<int64_t> step) {
  const int64_t rows = shape_.rows();
  step_.batches.clear();
  const size_t slot = size_t(submitted_++ % Executor::kDepth);
  std::byte* host = input_slots_.data() + slot * inputs_.bytes();
  uploaded_[slot].synchronize();  // the last step that used this slot has read it
  size_t at = noise_bytes(policy_);
  const auto put_noise = [&](size_t id) {
    const uint64_t logical = uint64_t(data_place()) * batches.size() + id;
    const uint64_t key = random_bits(policy_.seed, uint64_t(step.value_or(0)), logical);
    std::memcpy(host + id * sizeof(key), &key, sizeof(key));
    return step ? Tensor(inputs_.data() + id * sizeof(key), DType::i64, 1, 1) : Tensor{};
  };
  const auto put = [&](std::span<const int32_t> values) {
    std::memcpy(host + at, values.data(), values.size_bytes());
    std::byte* start = inputs_.data() + at;
    at += std::max(size_t(rows), values.size()) * sizeof(int32_t);
    return values.empty() ? Tensor{} : Tensor(start, DType::i32, 1, int64_t(values.size()));
  };
  for (const MicroBatch& batch : batches) {
    ensure(int64_t(batch.tokens.size()) == rows && int64_t(batch.targets.size()) == rows &&
               int64_t(batch.positions.size()) == rows &&
               (batch.doc_start.empty() || int64_t(batch.doc_start.size()) == rows * shape_.context),
           "[engine] a micro-batch has {} tokens, expected {}×{}", batch.tokens.size(), shape_.batch,
           shape_.seq);
    step_.batches.push_back({.shape = shape_,
                             .tokens = put(batch.tokens),
                             .targets = put(batch.targets),
                             .positions = put(batch.positions),
                             .doc_start = put(batch.doc_start),
                             .documents = count_documents(batch.doc_start, shape_.whole_seq()),
                             .valid_rows = put(batch.valid_rows),
                             .valid_count = int64_t(batch.valid_rows.size()),
                             .noise = put_noise(step_.batches.size())});
  }
  copy_async(executor_->compute(), inputs_.data(), host, at);
  uploaded_[slot].record(executor_->compute());
}

// Ranks tell each other how many valid tokens they have, so that the loss can be normalised before backward,
// how many embedding rows each will send, what they request, and how they spent the last step.
Wishes Engine::agree_on_batch(std::span<const MicroBatch> batches, const StepControl& control) {
  struct Told {
    int64_t valid = 0, rows = 0, inputs = 0;
    Wishes wishes;
    RankTimes spent;
  };
  Told mine{.wishes = control.wishes, .spent = control.spent};
  std::vector<int32_t> tokens;
  for (const MicroBatch& batch : batches) {
    mine.valid += int64_t(batch.valid_rows.size());
    mine.inputs += batch.inputs;
    if (executor_->sparse_rows().active())
      tokens.insert(tokens.end(), batch.tokens.begin(), batch.tokens.end());
  }
  if (executor_->sparse_rows().active()) mine.rows = executor_->sparse_rows().set_rows(tokens);
  Wishes wishes = control.wishes;
  step_.valid_tokens = 0;
  agreed_inputs_ = 0;
  rank_times_.clear();
  std::vector<int64_t> rows;
  const std::vector<std::string> all =
      world_.exchange({reinterpret_cast<const char*>(&mine), sizeof(mine)}, "token counts of a step");
  for (int rank = 0; rank < world_.size(); ++rank) {
    Told theirs;
    std::memcpy(&theirs, all[size_t(rank)].data(), sizeof(theirs));
    // Ranks that see the same tokens are counted once.
    if (mesh_.first(rank, comm::kAllAxes - comm::kDataAxes) == rank) {
      step_.valid_tokens += theirs.valid;
      agreed_inputs_ += theirs.inputs;
      rows.push_back(theirs.rows);
    }
    wishes.stop |= theirs.wishes.stop;
    wishes.save |= theirs.wishes.save;
    wishes.busy |= theirs.wishes.busy;
    rank_times_.push_back(theirs.spent);
  }
  if (executor_->sparse_rows().active()) executor_->sparse_rows().set_counts(std::move(rows));
  return wishes;
}

StepResult Engine::step(std::span<const MicroBatch> batches, const StepControl& control) {
  submit(batches, control);
  return collect();
}

Wishes Engine::submit(std::span<const MicroBatch> batches, const StepControl& control) {
  ensure(policy_.trains, "[engine] got a step, expected evaluations only");
  ensure(int(batches.size()) == policy_.micro_batches, "[engine] got {} micro-batches, expected {}",
         batches.size(), policy_.micro_batches);
  store_.flush();
  step_.hyper = control.hyper;
  step_.loss_scale = control.loss_scale;
  step_.clip = control.clip;
  step_.continues = false;
  const Wishes wishes = agree_on_batch(batches, control);
  upload(batches, control.hyper.step);
  try {
    executor_->launch(step_);
  } catch (const std::exception& error) {
    world_.fail(error.what());
    throw;
  }
  under_way_.push_back({step_.valid_tokens, agreed_inputs_, std::nullopt});
  if (shape_.device == Device::Kind::cuda) under_way_.back().traffic = traffic_since_last();
  return wishes;
}

comm::Traffic Engine::traffic_since_last() {
  const comm::Traffic now = executor_->traffic(), before = traffic_;
  traffic_ = now;
  return now - before;
}

StepOutcome Engine::wait() {
  try {
    return executor_->wait();
  } catch (const std::exception& error) {
    world_.fail(error.what());
    throw;
  }
}

StepResult Engine::collect() {
  const StepOutcome outcome = wait();
  StepResult result;
  const UnderWay step = under_way_.front();
  under_way_.pop_front();
  result.tokens = step.tokens;
  result.inputs = step.inputs;
  result.loss = result.tokens > 0 ? outcome.loss_sum / double(result.tokens) : 0;
  result.grad_norm = outcome.grad_norm;
  result.skipped = outcome.nonfinite > 0;
  result.bad_rank = outcome.first_bad_rank;
  if (result.skipped) result.bad_tensor = tensor_at(outcome.first_bad);
  result.times = executor_->step_times();
  result.traffic = step.traffic ? *step.traffic : traffic_since_last();
  return result;
}

std::string Engine::tensor_at(GradPlace place) const {
  for (int p = 0; p < int(units_.params.size()); ++p) {
    if (units_.places[p].group != place.group) continue;
    const auto& tensor = units_.groups[place.group].layout.tensors()[units_.places[p].tensor];
    if (place.index >= tensor.offset && place.index < tensor.offset + units_.params[p].count())
      return units_.params[p].name;
  }
  fail(ErrorKind::internal, "[engine] no tensor at element {} of group {}", place.index, place.group);
}

}  // namespace zeno::zero
