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
// then smaller micro-batches with more accumulation (the same batch), each also with what comes before it.
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

void require_fit(const nn::LayerList& model, const zero::EngineOptions& options, int world, size_t limit) {
  const size_t need = zero::plan_memory(model, options, world).ledger->booked(Tier::device);
  if (need <= limit) return;
  for (const Change& change : changes(options, world)) {
    const size_t bytes = zero::plan_memory(model, change.options, world).ledger->booked(Tier::device);
    require(bytes > limit, ErrorKind::memory, "[plan] a rank needs {} and may use {}; {} needs {} and fits",
            format_bytes(need), format_bytes(limit), change.flags, format_bytes(bytes));
  }
  fail(ErrorKind::memory,
       "[plan] a rank needs {} and may use {}; no stage, recompute or micro-batch setting fits: use more "
       "ranks, a "
       "shorter --seq-len or a smaller model",
       format_bytes(need), format_bytes(limit));
}

}  // namespace zeno::plan
