#include "zeno/plan/fit.h"

#include <gtest/gtest.h>

#include "tests/support/tiny_decoder.h"
#include "zeno/base/error.h"

namespace zeno::plan {
namespace {

// Before micro-batches are cut, a GPU may leave optimizer states and then activations on the host.
TEST(Fit, ActivationsLeaveAGpuAfterOptimizerStates) {
  const nn::LayerList layers =
      test::tiny_decoder(test::Family::llama, {.hidden = 64, .heads = 4, .blocks = 16, .max_seq = 256});
  const zero::EngineOptions options{.shape = {4, 256}, .device = {Device::Kind::cuda, 0}, .threads = 1};
  zero::EngineOptions away = options;
  away.policy.recompute = nn::Recompute::full;
  away.policy.offload.optimizer = Tier::host;
  const auto device_bytes = [&] { return zero::plan_memory(layers, away).ledger->booked(Tier::device); };
  const size_t with_activations = device_bytes();
  away.policy.offload.activations = true;
  const size_t without = device_bytes();
  ASSERT_LT(without, with_activations);
  for (const auto& [limit, flags] :
       {std::pair{with_activations, "; --recompute full --offload-optimizer cpu needs"},
        std::pair{without, "; --recompute full --offload-optimizer cpu --offload-activations needs"}}) {
    try {
      require_fit(layers, options, {.device = limit, .host = size_t(1) << 40});
      FAIL() << "it fits";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::memory);
      EXPECT_NE(std::string(error.what()).find(flags), std::string::npos) << error.what();
    }
  }
}

// What a refusal suggests is planned as a run with these flags has it: stage 3 overlaps, and parameters stay
// in memory as far as max_in_cpu says.
TEST(Fit, SuggestionsHaveTheDefaultsOfTheirFlags) {
  const nn::LayerList layers =
      test::tiny_decoder(test::Family::llama, {.hidden = 64, .heads = 4, .blocks = 8, .max_seq = 64});
  zero::EngineOptions options{.mesh = comm::Mesh::flat(2), .shape = {1, 64}, .threads = 1};
  zero::apply_stage(options.policy, 0);
  options.policy.overlap = false;
  options.policy.reduce_bucket = options.policy.gather_bucket = 40'000;  // about a block
  options.policy.prefetch = 0;
  options.policy.max_live = 1;
  options.policy.offload.host_params = 1'000'000'000;
  zero::EngineOptions sharded = options;
  zero::apply_stage(sharded.policy, 3);
  const auto bytes_of = [&](const zero::EngineOptions& some) {
    const zero::MemoryPlan plan = zero::plan_memory(layers, some);
    return plan.ledger->booked(Tier::device) + plan.ledger->booked(Tier::host);
  };
  const size_t exposed = bytes_of(sharded);
  sharded.policy.overlap = true;
  const size_t overlapped = bytes_of(sharded);
  ASSERT_LT(exposed, overlapped);
  const auto suggestion = [&](size_t limit) -> std::string {
    try {
      require_fit(layers, options, {.device = limit, .host = limit});
    } catch (const Error& error) {
      return error.what();
    }
    return "fits";
  };
  EXPECT_NE(suggestion(overlapped).find("; --stage 3 needs"), std::string::npos) << suggestion(overlapped);
  EXPECT_EQ(suggestion(overlapped - 1).find("; --stage 3 needs"), std::string::npos)
      << suggestion(overlapped - 1);
  EXPECT_EQ(suggestion(overlapped / 4).find("--offload-param nvme"), std::string::npos)
      << suggestion(overlapped / 4);
}

}  // namespace
}  // namespace zeno::plan
