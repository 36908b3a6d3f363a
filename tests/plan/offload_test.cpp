// Homes of states from the memory there is, and the CPU's part of the updates from measured rates.
#include "zeno/plan/offload.h"

#include <gtest/gtest.h>

#include "tests/support/tiny_decoder.h"
#include "zeno/plan/machine/cpu_share.h"

namespace zeno::plan {
namespace {

zero::EngineOptions options() {
  zero::EngineOptions options;
  options.policy.compute = DType::bf16;
  options.policy.offload.chunk = 1024;
  options.shape = {2, 12};
  options.device = {Device::Kind::cuda, 0};  // planned for, not used
  return options;
}

// Whatever the limits between "everything" and "next to nothing": what is chosen fits, and the nearest tiers
// are full.
TEST(Offload, FillsTheFastestTierFirst) {
  const nn::LayerList model = test::tiny_decoder(test::Family::llama, {.blocks = 4});
  const zero::MemoryPlan all = zero::plan_memory(model, options());
  const size_t everything = all.ledger->booked(Tier::device);
  const size_t states =
      all.ledger->booked(Tier::device, Purpose::masters) + all.ledger->booked(Tier::device, Purpose::moments);
  size_t on_host_before = 0;
  for (double part : {0.0, 0.3, 0.6}) {
    for (double host : {2.0, 0.4}) {
      SCOPED_TRACE(testing::Message() << part << " of the states too many for the device, host " << host);
      zero::EngineOptions chosen = options();
      const MemoryLimits limits{everything - size_t(part * double(states)), size_t(host * double(states))};
      choose_offload(model, chosen, limits, true);
      const zero::MemoryPlan plan = zero::plan_memory(model, chosen);
      EXPECT_EQ(missing_device_bytes(plan, chosen.device, limits), 0u);
      EXPECT_EQ(missing_host_bytes(plan, chosen.device, limits), 0u);
      if (part == 0) {
        EXPECT_EQ(chosen.policy.offload.optimizer, Tier::device);
      }
      if (host == 2.0) {
        EXPECT_EQ(plan.ledger->booked(Tier::disk), 0u);
        const size_t on_host = plan.ledger->booked(Tier::host, Purpose::moments);
        EXPECT_GE(on_host, on_host_before);
        on_host_before = on_host;
      }
    }
  }
  EXPECT_GT(on_host_before, 0u);
}

// Every byte on the disk is read and written in every step: no tier may have room for another chunk or two.
TEST(Offload, LeavesNoRoomInTheFastTiers) {
  const nn::LayerList model = test::tiny_decoder(test::Family::llama, {.blocks = 4});
  zero::EngineOptions chosen = options();
  chosen.policy.offload.chunk = 64;
  const zero::MemoryPlan all = zero::plan_memory(model, chosen);
  const size_t states =
      all.ledger->booked(Tier::device, Purpose::masters) + all.ledger->booked(Tier::device, Purpose::moments);
  const MemoryLimits limits{all.ledger->booked(Tier::device) - states / 2, states / 4};
  choose_offload(model, chosen, limits, true);
  const zero::MemoryPlan plan = zero::plan_memory(model, chosen);
  constexpr size_t kChunk = 64 * 12;
  EXPECT_GT(plan.ledger->booked(Tier::disk), 0u);
  EXPECT_LE(limits.device - plan.ledger->booked(Tier::device), 3 * kChunk);
  EXPECT_LE(limits.host - plan.ledger->booked(Tier::host), 3 * kChunk);
}

TEST(Offload, TheWindowTakesWhatIsLeft) {
  const nn::LayerList model = test::tiny_decoder(test::Family::llama, {.blocks = 4});
  zero::EngineOptions away = options();
  away.policy.offload.optimizer = Tier::host;
  const size_t least = zero::plan_memory(model, away).ledger->booked(Tier::device);
  int64_t before = -1;
  for (size_t spare : {size_t(0), size_t(40'000), size_t(1'000'000)}) {
    const MemoryLimits limits{least + spare, size_t(1) << 40};
    widen_window(model, away, limits);
    EXPECT_EQ(missing_device_bytes(zero::plan_memory(model, away), away.device, limits), 0u);
    EXPECT_GT(away.policy.offload.device_window, before);
    before = away.policy.offload.device_window;
  }
}

TEST(Offload, TheCpuTakesMoreTheFasterItIsAndTheSlowerTheLink) {
  const zero::Policy policy = options().policy;
  const auto share = [&](double link, double updates) { return balanced_cpu_share({link, updates}, policy); };
  EXPECT_GT(share(50e9, 6e9), share(50e9, 1e9));
  EXPECT_GT(share(10e9, 1e9), share(50e9, 1e9));
  EXPECT_EQ(share(50e9, 0), 0);
  for (double link : {1e6, 1e9, 1e13}) {
    EXPECT_GE(share(link, 1e9), 0);
    EXPECT_LE(share(link, 1e9), 1);
  }
}

}  // namespace
}  // namespace zeno::plan
