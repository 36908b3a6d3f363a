#include "zeno/plan/recompute.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/support/tiny_decoder.h"
#include "zeno/plan/fit.h"

namespace zeno::plan {
namespace {

constexpr int kBlocks = 5;

nn::LayerList recompute_model() {
  return test::tiny_decoder(test::Family::llama,
                            {.hidden = 64, .heads = 4, .blocks = kBlocks, .max_seq = 64});
}

// Saving takes memory too, which on a CPU is the same.
zero::EngineOptions recompute_options() { return {.shape = {4, 64}, .threads = 1, .snapshot_piece = 4096}; }

size_t bytes_of(const zero::EngineOptions& options) {
  const zero::MemoryPlan plan = zero::plan_memory(recompute_model(), options);
  return plan.ledger->booked(Tier::device) + plan.ledger->booked(Tier::host);
}

size_t bytes_of(zero::EngineOptions options, nn::Recompute mode, int blocks, nn::Recompute rest) {
  options.policy.recompute = mode;
  options.policy.recompute_blocks = blocks;
  options.policy.recompute_rest = rest;
  return bytes_of(options);
}

// All settings from the cheapest in time to the cheapest in memory, with what each needs.
struct RecomputeSetting {
  nn::Recompute mode;
  int blocks;
  nn::Recompute rest;
  size_t bytes;
};
std::vector<RecomputeSetting> ladder() {
  std::vector<RecomputeSetting> all;
  using enum nn::Recompute;
  for (const auto& [mode, rest] : {std::pair{selective, none}, std::pair{full, selective}}) {
    for (int blocks = 0; blocks <= kBlocks; ++blocks) {
      all.push_back({mode, blocks, rest, bytes_of(recompute_options(), mode, blocks, rest)});
    }
  }
  return all;
}

TEST(Recompute, TakesTheFirstSettingThatFits) {
  const nn::LayerList layers = recompute_model();
  for (const RecomputeSetting& wanted : ladder()) {
    for (const size_t limit : {wanted.bytes, wanted.bytes + 1000}) {
      zero::EngineOptions chosen = recompute_options();
      choose_recompute(layers, chosen, limit);
      const std::vector<RecomputeSetting> all = ladder();
      const auto first =
          std::find_if(all.begin(), all.end(), [&](const RecomputeSetting& s) { return s.bytes <= limit; });
      EXPECT_EQ(bytes_of(chosen), first->bytes) << limit;
      EXPECT_NO_THROW(require_fit(layers, chosen, {.device = limit, .host = limit}));
      EXPECT_LE(first->bytes, limit);
    }
  }
}

TEST(Recompute, SaysWhatItChose) {
  const nn::LayerList layers = recompute_model();
  zero::EngineOptions chosen = recompute_options();
  choose_recompute(layers, chosen, size_t(1) << 40);
  EXPECT_EQ(describe_recompute(layers, chosen.policy), "recompute: none");
  choose_recompute(layers, chosen,
                   bytes_of(recompute_options(), nn::Recompute::full, 2, nn::Recompute::selective));
  EXPECT_EQ(describe_recompute(layers, chosen.policy),
            "recompute: full for 2 of 5 blocks, selective for the others");
}

TEST(Recompute, WhenNothingFitsTheRefusalNamesAnotherChange) {
  const nn::LayerList layers = recompute_model();
  zero::EngineOptions chosen = recompute_options();
  size_t limit = std::numeric_limits<size_t>::max();
  for (const RecomputeSetting& setting : ladder()) limit = std::min(limit, setting.bytes - 1000);
  choose_recompute(layers, chosen, limit);
  try {
    require_fit(layers, chosen, {.device = limit, .host = limit});
    FAIL() << "it fits";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::memory);
    EXPECT_NE(std::string(error.what()).find("--micro-batch 2 --grad-accum 2"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace zeno::plan
