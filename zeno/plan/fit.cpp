#include "zeno/plan/fit.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/config/config_resolve.h"
#include "zeno/plan/plan_rows.h"

namespace zeno::plan {
namespace {

// One flag, or two that belong together, and what they do.
struct Change {
  std::string_view what;  // of those that say the same thing, the last one counts
  std::string flags;
  std::function<void(zero::EngineOptions&)> apply;
};
using Changes = std::vector<Change>;

int smallest_factor(int64_t n) {
  for (int factor = 2; int64_t(factor) * factor <= n; ++factor)
    if (n % factor == 0) return factor;
  return int(n);
}

// The same batch in smaller pieces, as far as they go.
void add_micro_batches(Changes& list, const zero::EngineOptions& options) {
  nn::BatchShape shape = options.shape;
  int micro_batches = options.policy.micro_batches;
  while (shape.batch > 1) {
    const int factor = smallest_factor(shape.batch);
    // Products in fp8 want whole groups of 16 rows.
    if (options.policy.fp8 && shape.rows() / factor % 16 != 0) return;
    shape.batch /= factor;
    micro_batches *= factor;
    list.push_back({"micro-batch",
                    fmt::format("--micro-batch {} --grad-accum {}", shape.batch, micro_batches),
                    [batch = shape.batch, micro_batches](zero::EngineOptions& o) {
                      o.shape.batch = batch;
                      o.policy.micro_batches = micro_batches;
                    }});
  }
}

// As a run with this flag has it.
void set_stage(zero::Policy& policy, int stage) {
  zero::apply_stage(policy, stage);
  policy.overlap |= config::overlaps_by_default(stage);
}

void add_offload(Changes& list, Tier tier, std::string_view device) {
  const std::string_view folder = tier == Tier::disk ? " --nvme-path FOLDER" : "";
  list.push_back({"optimizer", fmt::format("--offload-optimizer {}{}", device, folder),
                  [tier](zero::EngineOptions& o) { o.policy.offload.optimizer = tier; }});
  if (tier == Tier::host)
    list.push_back({"activations", "--offload-activations",
                    [](zero::EngineOptions& o) { o.policy.offload.activations = true; }});
  list.push_back({"parameters", fmt::format("--offload-param {}", device),
                  [tier](zero::EngineOptions& o) { o.policy.offload.params = tier; }});
}

// In the order of what they cost the user: sharding (traffic), recompute (a third of the compute), what a GPU
// can leave on the host, smaller micro-batches with more accumulation (the same batch), the disk; at last
// sequences are cut, which is another training.
Changes all_changes(const zero::EngineOptions& options) {
  Changes list;
  for (int stage = 1; stage < zero::kStages && options.mesh.data_ranks() > 1; ++stage)
    list.push_back({"stage", fmt::format("--stage {}", stage),
                    [stage](zero::EngineOptions& o) { set_stage(o.policy, stage); }});
  for (const auto& [mode, name] :
       {std::pair{nn::Recompute::selective, "selective"}, {nn::Recompute::full, "full"}})
    list.push_back({"recompute", fmt::format("--recompute {}", name), [mode = mode](zero::EngineOptions& o) {
                      o.policy.recompute = mode;
                      o.policy.recompute_blocks = -1;
                    }});
  if (options.device.kind == Device::Kind::cuda) add_offload(list, Tier::host, "cpu");
  add_micro_batches(list, options);
  add_offload(list, Tier::disk, "nvme");
  const int context = options.mesh.size(comm::Axis::context);
  for (int64_t seq = options.shape.seq / 2; seq * context >= 64; seq /= 2)
    list.push_back({"sequence", fmt::format("--seq-len {}", seq * context),
                    [seq](zero::EngineOptions& o) { o.shape.seq = seq; }});
  return list;
}

zero::EngineOptions with(zero::EngineOptions options, const Changes& changes) {
  for (const Change& change : changes) change.apply(options);
  return options;
}

// Bytes beyond the limits; 0: it fits.
using Missing = std::function<size_t(const zero::EngineOptions&)>;

// As few changes as fit, those that cost most left out first; empty: nothing fits. A change that helps
// nothing (buffers of a disk may take more than they free) is not kept.
Changes smallest_changes(const zero::EngineOptions& options, const Missing& missing_of) {
  Changes kept;
  size_t missing = missing_of(options);
  for (const Change& change : all_changes(options)) {
    Changes more = kept;
    std::erase_if(more, [&](const Change& before) { return before.what == change.what; });
    more.push_back(change);
    const size_t still = missing_of(with(options, more));
    if (still >= missing) continue;
    kept = std::move(more);
    missing = still;
    if (missing > 0) continue;
    for (size_t i = kept.size() - 1; i-- > 0;) {
      Changes fewer = kept;
      fewer.erase(fewer.begin() + std::ptrdiff_t(i));
      if (missing_of(with(options, fewer)) == 0) kept = std::move(fewer);
    }
    return kept;
  }
  return {};
}

std::string flags_of(const Changes& changes) {
  std::vector<std::string> flags;
  for (const Change& change : changes) flags.push_back(change.flags);
  return fmt::format("{}", fmt::join(flags, " "));
}

}  // namespace

int ranks_that_fit(const nn::LayerList& model, zero::EngineOptions options, MemoryLimits limits) {
  constexpr int kMost = 1 << 14;
  set_stage(options.policy, 3);
  options.policy.recompute = nn::Recompute::full;
  options.policy.recompute_blocks = -1;
  options.shape.batch = 1;
  for (;;) {
    options.mesh = options.mesh.with(comm::Axis::outer, 2 * options.mesh.size(comm::Axis::outer));
    if (options.mesh.ranks() > kMost) return 0;
    if (fits(zero::plan_memory(model, options), options.device, limits)) return options.mesh.ranks();
  }
}

void require_fit(const nn::LayerList& model, const zero::EngineOptions& options, MemoryLimits limits) {
  const zero::MemoryPlan plan = zero::plan_memory(model, options);
  if (fits(plan, options.device, limits)) return;
  const size_t on_host = missing_host_bytes(plan, options.device, limits);
  const size_t on_device = missing_device_bytes(plan, options.device, limits);
  const zero::Stage& stage = plan.stages[size_t(on_device > 0 ? Tier::device : Tier::host)];
  const std::string rank =
      stage.count > 1 ? fmt::format("a rank of pipeline stage {}", stage.index) : "a rank";
  const std::string lack =
      on_device > 0 ? fmt::format("{} needs {} and may use {}", rank, format_bytes(limits.device + on_device),
                                  format_bytes(limits.device))
                    : fmt::format("{} needs {} of host memory and may use {}", rank,
                                  format_bytes(limits.host + on_host), format_bytes(limits.host));
  const Changes changes = smallest_changes(options, [&](const zero::EngineOptions& changed) {
    const zero::MemoryPlan some = zero::plan_memory(model, changed);
    return missing_device_bytes(some, options.device, limits) +
           missing_host_bytes(some, options.device, limits);
  });
  if (!changes.empty()) {
    const zero::MemoryPlan changed = zero::plan_memory(model, with(options, changes));
    const size_t host = options.device.kind == Device::Kind::cpu ? changed.ledger->booked(Tier::host) : 0;
    fail(ErrorKind::memory, "[plan] {}; {} needs {} and fits", lack, flags_of(changes),
         format_bytes(changed.ledger->booked(Tier::device) + host));
  }
  const int ranks = ranks_that_fit(model, options, limits);
  fail(ErrorKind::memory, "[plan] {}; no setting fits: {} or a smaller model", lack,
       ranks > 0
           ? fmt::format("use --ranks {} --stage 3 --recompute full --micro-batch 1 on more devices,", ranks)
           : "use devices with more memory");
}

}  // namespace zeno::plan
