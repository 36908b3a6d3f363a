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
  const auto device_bytes = [&] { return zero::plan_memory(layers, away, 1).ledger->booked(Tier::device); };
  const size_t with_activations = device_bytes();
  away.policy.offload.activations = true;
  const size_t without = device_bytes();
  ASSERT_LT(without, with_activations);
  for (const auto& [limit, flags] :
       {std::pair{with_activations, "; --recompute full --offload-optimizer cpu needs"},
        std::pair{without, "; --recompute full --offload-optimizer cpu --offload-activations needs"}}) {
    try {
      require_fit(layers, options, 1, {.device = limit, .host = size_t(1) << 40});
      FAIL() << "it fits";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::memory);
      EXPECT_NE(std::string(error.what()).find(flags), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace zeno::plan
