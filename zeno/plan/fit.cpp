#include "zeno/plan/fit.h"

#include <fmt/format.h>

#include <vector>

#include "zeno/base/error.h"

namespace zeno::plan {
namespace {

struct Change {
  std::string flags;
  zero::EngineOptions options;
};

// In the order of what they cost the user: sharding first (traffic), then recompute (a third of the compute),
// then what a GPU can leave on the host, then smaller micro-batches with more accumulation (the same batch),
// each also with what comes before it.
std::vector<Change> changes(const zero::EngineOptions& options, int world) {
  std::vector<Change> list;
  zero::EngineOptions next = options;
  std::string flags;
  for (int stage = 1; stage <= 3 && world > 1; ++stage) {
    zero::apply_stage(next.policy, stage);
    list.push_back({fmt::format("--stage {}", stage), next});
    flags = "--stage 3 ";
  }
  for (const auto& [mode, name] :
       {std::pair{nn::Recompute::selective, "selective"}, {nn::Recompute::full, "full"}}) {
    next.policy.recompute = mode;
    next.policy.recompute_blocks = -1;
    list.push_back({fmt::format("{}--recompute {}", flags, name), next});
  }
  flags += "--recompute full ";
  if (next.device.kind == Device::Kind::cuda && next.policy.offload.optimizer == Tier::device) {
    next.policy.offload.optimizer = Tier::host;
    flags += "--offload-optimizer cpu ";
    list.push_back({flags.substr(0, flags.size() - 1), next});
  }
  if (next.device.kind == Device::Kind::cuda && !next.policy.offload.activations) {
    next.policy.offload.activations = true;
    flags += "--offload-activations ";
    list.push_back({flags.substr(0, flags.size() - 1), next});
  }
  // Products in fp8 want whole groups of 16 rows.
  const auto can_halve = [&] {
    return next.shape.batch % 2 == 0 && (!next.policy.fp8 || next.shape.rows() / 2 % 16 == 0);
  };
  while (can_halve()) {
    next.shape.batch /= 2;
    next.policy.micro_batches *= 2;
    list.push_back({fmt::format("{}--micro-batch {} --grad-accum {}", flags, next.shape.batch,
                                next.policy.micro_batches),
                    next});
  }
  return list;
}

}  // namespace

void require_fit(const nn::LayerList& model, const zero::EngineOptions& options, int world,
                 MemoryLimits limits) {
  const zero::MemoryPlan plan = zero::plan_memory(model, options, world);
  if (fits(plan, options.device, limits)) return;
  const size_t host = missing_host_bytes(plan, options.device, limits);
  require(
      host == 0, ErrorKind::memory,
      "[plan] a rank needs {} of host memory and may use {}; keep states on disk with --offload-optimizer "
      "auto --nvme-path FOLDER, or use more hosts",
      format_bytes(limits.host + host), format_bytes(limits.host));
  const auto need = [&](const zero::MemoryPlan& some) {
    const size_t missing = missing_device_bytes(some, options.device, limits);
    return missing > 0 ? limits.device + missing : some.ledger->booked(Tier::device);
  };
  for (const Change& change : changes(options, world)) {
    const zero::MemoryPlan changed = zero::plan_memory(model, change.options, world);
    require(!fits(changed, options.device, limits), ErrorKind::memory,
            "[plan] a rank needs {} and may use {}; {} needs {} and fits", format_bytes(need(plan)),
            format_bytes(limits.device), change.flags, format_bytes(need(changed)));
  }
  fail(ErrorKind::memory,
       "[plan] a rank needs {} and may use {}; no stage, recompute or micro-batch setting fits: use more "
       "ranks, a "
       "shorter --seq-len or a smaller model, or --offload-optimizer auto --nvme-path FOLDER",
       format_bytes(need(plan)), format_bytes(limits.device));
}

}  // namespace zeno::plan
