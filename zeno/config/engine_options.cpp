#include "zeno/config/engine_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "zeno/base/error.h"
#include "zeno/base/file.h"
#include "zeno/base/log.h"
#include "zeno/checkpoint/manifest.h"
#include "zeno/device/device.h"

namespace zeno::config {
namespace {

nn::Recompute recompute_of(RecomputeMode mode) {
  switch (mode) {
    case RecomputeMode::none:
      return nn::Recompute::none;
    case RecomputeMode::selective:
      return nn::Recompute::selective;
    case RecomputeMode::full:
      return nn::Recompute::full;
    case RecomputeMode::automatic:  // chosen later, when the memory is known
      return nn::Recompute::none;
  }
  return nn::Recompute::none;
}

OptimizerHyper::Kind kind_of(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::adamw:
      return OptimizerHyper::Kind::adamw;
    case OptimizerKind::adam:
      return OptimizerHyper::Kind::adam;
    case OptimizerKind::sgd:
      return OptimizerHyper::Kind::sgd;
    case OptimizerKind::lion:
      return OptimizerHyper::Kind::lion;
  }
  return OptimizerHyper::Kind::adamw;
}

std::optional<DType> moments_of(MomentDtype dtype) {
  switch (dtype) {
    case MomentDtype::automatic:
      return std::nullopt;
    case MomentDtype::fp32:
      return DType::f32;
    case MomentDtype::bf16:
      return DType::bf16;
    case MomentDtype::eight:
      return DType::u8;
  }
  return std::nullopt;
}

Tier tier_of(OffloadDevice device) {
  switch (device) {
    case OffloadDevice::cpu:
      return Tier::host;
    case OffloadDevice::nvme:
      return Tier::disk;
    case OffloadDevice::none:
    case OffloadDevice::automatic:  // chosen later, when the memory is known
      return Tier::device;
  }
  return Tier::device;
}

zero::Offload offload_of(const ZeroConfig& config) {
  zero::Offload offload;
  offload.params = tier_of(config.offload_param.device);
  offload.optimizer = tier_of(config.offload_optimizer.device);
  offload.ratio = config.offload_optimizer.ratio;
  offload.host_params = config.offload_param.max_in_cpu;
  if (config.sub_group_size > 0) offload.chunk = std::min(offload.chunk, config.sub_group_size);
  offload.host_window = config.offload_optimizer.buffer_count * offload.chunk;
  return offload;
}

// Of "/a,/b".
std::vector<Path> folders_of(const std::string& paths) {
  std::vector<Path> folders;
  for (size_t begin = 0; begin < paths.size();) {
    const size_t end = std::min(paths.find(',', begin), paths.size());
    if (end > begin) folders.emplace_back(paths.substr(begin, end - begin));
    begin = end + 1;
  }
  return folders;
}

// Runs that share a disk have files of their own: the name comes from where the result goes.
DiskOptions disk_of(const TrainConfig& config) {
  const OffloadOptimizerConfig& optimizer = config.zero.offload_optimizer;
  DiskOptions disk;
  disk.folders =
      folders_of(optimizer.nvme_path.empty() ? config.zero.offload_param.nvme_path : optimizer.nvme_path);
  const std::string out = config.run.out.empty() ? "" : std::filesystem::absolute(config.run.out).string();
  disk.name = fmt::format("{:08x}-", uint32_t(checkpoint::checksum_of(std::as_bytes(std::span(out)))));
  return disk;
}

}  // namespace

int64_t sequence_length(const RunConfig& run, int64_t max_positions) {
  constexpr int64_t kPractical = 1024;
  if (run.seq_len > max_positions && log_rank() <= 0) {
    log_warning("--seq-len {}: the model was made for sequences up to {}; it has not seen longer ones",
                run.seq_len, max_positions);
  }
  return run.seq_len > 0 ? run.seq_len : std::min(max_positions, kPractical);
}

comm::MeshRequest mesh_request(const TrainConfig& config, int ranks, int ranks_per_host) {
  const int64_t group = std::max(config.zero.shard_group, config.zero.param_group);
  return {.ranks = ranks,
          .ranks_per_host = ranks_per_host,
          .group = group > 1 ? int(group) : 0,
          .pipe = int(config.parallel.pipe),
          .context = int(std::max<int64_t>(1, config.parallel.context))};
}

comm::Mesh mesh_of(const TrainConfig& config, const comm::World& world) {
  return comm::mesh_of(mesh_request(config, world.size(), world.ranks_per_host()));
}

int batch_ranks(const TrainConfig& config, int ranks) {
  comm::MeshRequest request = mesh_request(config, ranks, 0);
  request.group = 0;
  return comm::mesh_of(request).batch_ranks();
}

zero::EngineOptions engine_options(const TrainConfig& config, const comm::Mesh& mesh, int64_t seq_len,
                                   Device device) {
  const int context = mesh.size(comm::Axis::context);
  require(seq_len % context == 0, ErrorKind::usage,
          "[config] --context {}: got sequences of {} tokens, expected a multiple of {}; choose another "
          "--seq-len",
          context, seq_len, context);
  zero::Policy policy;
  if (config.zero.param_group > 1) policy.sharding = zero::Sharding::params_in_groups;
  if (config.zero.shard_group > 1) policy.sharding = zero::Sharding::in_groups;
  zero::apply_stage(policy, int(config.zero.stage));
  policy.compute = config.precision.compute;
  policy.grad = config.precision.grad_accum;
  policy.wire = config.precision.communication;
  if (config.run.reduction == ReductionMode::native) policy.reduction = comm::Reduction::native;
  policy.int8_weights = config.zero.quantized_weights;
  policy.coded_gradients = config.zero.quantized_gradients;
  policy.reduce_bucket = config.zero.reduce_bucket_size;
  policy.gather_bucket = config.zero.allgather_bucket_size;
  policy.prefetch = config.zero.prefetch_bucket_size;
  policy.max_live = config.zero.max_live_parameters;
  policy.reuse_distance = config.zero.max_reuse_distance;
  policy.persist_below = config.zero.param_persistence_threshold;
  policy.persist_total = config.zero.model_persistence_threshold;
  policy.overlap = config.zero.overlap_comm;
  // GPUs reduce whole gradients, which gives the same bits.
  policy.sparse_gradients = config.sparse_gradients && device.kind == Device::Kind::cpu;
  policy.order =
      config.run.order == MicroBatchOrder::vertical ? zero::Order::vertical : zero::Order::horizontal;
  policy.micro_batches = int(config.batch.grad_accum);
  policy.recompute = recompute_of(config.recompute.mode);
  policy.recompute_every = int(config.recompute.every);
  policy.reproducible = config.run.reproducible;
  policy.deterministic = config.run.deterministic;
  policy.states = config.precision.states;
  policy.moments = moments_of(config.precision.moments);
  policy.seed = uint64_t(config.run.seed);
  policy.fp8 = config.precision.matmul == MatmulDtype::fp8;
  policy.nf4_base = config.lora.quantize_base == BaseDtype::nf4;
  const bool adam =
      config.optimizer.kind == OptimizerKind::adamw || config.optimizer.kind == OptimizerKind::adam;
  policy.moments_first = config.optimizer.kind != OptimizerKind::sgd || config.optimizer.momentum != 0;
  policy.moments_second = adam;
  policy.offload = offload_of(config.zero);
  policy.offload.activations = config.recompute.offload;
  zero::EngineOptions options{.policy = policy,
                              .mesh = mesh,
                              .shape = {config.batch.micro_batch, seq_len / context},
                              .device = device};
  const bool in_memory = config.run.peer_snapshot > 0;
  if (config.run.save_every > 0 || in_memory) options.snapshot_piece = checkpoint::kExtentElements;
  if (in_memory) options.snapshot_copies = kPeerSnapshots;
  options.disk = disk_of(config);
  return options;
}

Device device_of(const RunConfig& run, int local_rank) {
  const int gpus = device_count(Device::Kind::cuda);
  if (run.device == RunDevice::cpu || (run.device == RunDevice::automatic && gpus == 0)) return {};
  require(gpus > 0, ErrorKind::usage,
          "[train] --device cuda: got no usable GPU, expected at least one; use --device cpu, or see what "
          "zeno doctor says about it");
  return {Device::Kind::cuda, local_rank % gpus};
}

void check_disk_folders(const ParsedConfig& parsed) {
  const ZeroConfig& zero = parsed.config.zero;
  const auto check = [&](const char* block, OffloadDevice device, const std::string& paths) {
    const bool used = device == OffloadDevice::nvme || device == OffloadDevice::automatic;
    if (!used && !parsed.config.run.choose) return;
    const std::string key = fmt::format("zero_optimization.{}.nvme_path", block);
    const auto origin = parsed.origins.find(key);
    for (const Path& folder : folders_of(paths)) {
      require(folder_exists(folder), ErrorKind::usage,
              "[config] {}{}: got {}, which is not a folder on this machine; create it on a fast disk, or "
              "choose another with --nvme-path",
              origin == parsed.origins.end() ? "" : origin->second.text + ": ", key, folder.string());
    }
  };
  check("offload_optimizer", zero.offload_optimizer.device, zero.offload_optimizer.nvme_path);
  check("offload_param", zero.offload_param.device, zero.offload_param.nvme_path);
}

OptimizerHyper hyper_after(const TrainConfig& config, int64_t completed) {
  const OptimizerConfig& optimizer = config.optimizer;
  return {.kind = kind_of(optimizer.kind),
          .lr = learning_rate(config.schedule, completed),
          .beta1 = optimizer.betas[0],
          .beta2 = optimizer.betas[1],
          .eps = optimizer.eps,
          .weight_decay = optimizer.weight_decay,
          .momentum = optimizer.momentum,
          .bias_correction = optimizer.bias_correction,
          .step = completed + 1};
}

}  // namespace zeno::config
