// Promise 1 over tiers: wherever optimizer states and parameters are kept, losses, norms and weights have the
// bits of a run that keeps everything on the device. The CPU stands in for a GPU too: with `far_host` its
// "device" memory is reached by copies only, through the same instructions.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/full_tests.h"
#include "tests/support/homes.h"
#include "tests/support/temp_dir.h"
#include "tests/support/train_run.h"
#include "zeno/base/rng.h"
#include "zeno/zero/program/program_check.h"

namespace zeno::zero {
namespace {

using test::all_homes;
using test::Family;
using test::Homes;
using test::kFull;
using test::run_threads;
using test::RunResult;
using test::RunSpec;

class OffloadMatrix : public testing::TestWithParam<int> {
 protected:
  // Sampled unless all tests are asked for: about one setting in `stride`.
  static bool chosen(int index, int stride) {
    return kFull || random_bits(5, 1, uint64_t(index)) % stride == 0;
  }
  test::TempDir folder_;
};

TEST_P(OffloadMatrix, SameBitsWhereverStatesAreKept) {
  const int world = GetParam();
  int index = 0, ran = 0;
  for (DType dtype : {DType::f32, DType::bf16}) {
    for (int micro_batches : {1, 3}) {
      for (Order order : {Order::horizontal, Order::vertical}) {
        if (micro_batches == 1 && order == Order::vertical) continue;
        for (int stage : {0, 1, 2, 3}) {
          RunSpec base;
          base.family = stage % 2 ? Family::gpt2 : Family::llama;
          base.world = world;
          base.policy.compute = dtype;
          base.policy.micro_batches = micro_batches;
          base.policy.order = order;
          base.policy.prefetch = 8000;
          base.policy.persist_below = 40;
          apply_stage(base.policy, stage);
          std::optional<RunResult> reference;
          for (const Homes& homes : all_homes()) {
            if (world > 1 && stage < 3 && homes.params != Tier::device) continue;
            if (!chosen(index++, 24)) continue;
            if (!reference) reference = run_threads(base);
            RunSpec spec = base;
            homes.set(spec, folder_.path());
            const RunResult result = run_threads(spec);
            ++ran;
            ASSERT_EQ(result, *reference) << "stage " << stage << " " << name_of(dtype) << " k "
                                          << micro_batches << " " << homes.text();
            EXPECT_EQ(result.booked_tiers, result.peak_tiers) << homes.text();
          }
        }
      }
    }
  }
  EXPECT_GT(ran, 5);
}
INSTANTIATE_TEST_SUITE_P(Worlds, OffloadMatrix, testing::Values(1, 2, 3));

// Nothing is left on the device but what passes through.
TEST(Offload, StatesLeaveTheDevice) {
  RunSpec spec;
  spec.policy.compute = DType::bf16;
  const auto plan = [&] {
    return plan_memory(test::model_of(spec), {.policy = spec.policy, .shape = spec.batch});
  };
  const MemoryPlan resident = plan();
  for (Tier tier : {Tier::host, Tier::disk}) {
    Homes{tier, tier, true}.set(spec, {});
    spec.policy.offload.host_states = spec.policy.offload.host_params = 0;
    spec.policy.persist_below = 0;
    const MemoryPlan away = plan();
    for (Purpose purpose : {Purpose::parameters, Purpose::masters, Purpose::moments}) {
      EXPECT_EQ(away.ledger->booked(Tier::device, purpose), 0u);
      EXPECT_GE(away.ledger->booked(tier, purpose), resident.ledger->booked(Tier::device, purpose));
    }
  }
}

// Moments in fewer bits are rounded as a function of step and place: the bits do not depend on where they
// are.
TEST(Offload, SmallMomentsGiveTheSameBitsWhereverTheyAreKept) {
  test::TempDir folder;
  for (DType moments : {DType::bf16, DType::u8}) {
    RunSpec spec;
    spec.world = 2;
    spec.policy.compute = DType::bf16;
    spec.policy.moments = moments;
    const RunResult reference = run_threads(spec);
    int index = 0;
    for (int stage : {1, 3}) {
      apply_stage(spec.policy, stage);
      EXPECT_EQ(run_threads(spec), reference) << "stage " << stage;
      for (const Homes& homes : all_homes()) {
        if ((stage < 3 && homes.params != Tier::device) || (!kFull && index++ % 5 != 0)) continue;
        RunSpec other = spec;
        homes.set(other, folder.path());
        EXPECT_EQ(run_threads(other), reference) << "stage " << stage << " " << homes.text();
      }
    }
  }
}

// A step that is skipped leaves parameters of other tiers as they were.
TEST(Offload, SkippedStepsChangeNothing) {
  test::TempDir folder;
  RunSpec spec;
  spec.policy.compute = spec.policy.grad = spec.policy.wire = DType::f16;
  spec.loss_scale = 1e9;  // beyond fp16: every step overflows
  const RunResult reference = run_threads(spec);
  ASSERT_TRUE(std::isinf(reference.norms[0]) || std::isnan(reference.norms[0]));
  for (const Homes& homes : all_homes()) {
    RunSpec other = spec;
    homes.set(other, folder.path());
    EXPECT_EQ(run_threads(other).hash, reference.hash) << homes.text();
  }
}

// A disk that has work from the first update on, and host memory that it fills ahead of the link.
TEST(Offload, ChunksOfTheDiskPassBetweenThoseOfTheHost) {
  test::TempDir folder;
  RunSpec spec;
  spec.policy.compute = DType::bf16;
  const RunResult reference = run_threads(spec);
  Homes{Tier::disk, Tier::device, true}.set(spec, folder.path());
  Offload& offload = spec.policy.offload;
  offload.chunk = 256;
  offload.host_states = 8000;
  offload.device_window = 600;
  EXPECT_EQ(run_threads(spec), reference);

  const nn::LayerList model = test::model_of(spec);
  const Policy policy = normalized(spec.policy, comm::Mesh::flat(1));
  const UnitTable units = make_units(model, policy, comm::Mesh::flat(1));
  const Program program = compile({model, units, policy, comm::Mesh::flat(1), spec.batch});
  check_program(program, units);
  int host_after_disk = 0, disk = 0, reads_ahead = 0;
  for (const Instruction& in : program.instructions) {
    if (in.is<Read>()) ++reads_ahead;
    const Update* update = in.as<Update>();
    if (update == nullptr) continue;
    const bool from_disk = units.chunks[size_t(update->chunk)].tier == Tier::disk;
    if (disk == 0 && !from_disk) continue;
    from_disk ? ++disk : ++host_after_disk;
    if (disk == 1 && from_disk) {
      EXPECT_GE(reads_ahead, 3) << "more than the device's window has room for";
    }
  }
  EXPECT_GT(disk, 3);
  EXPECT_GT(host_after_disk, 8);
}

template <class Kind>
bool moves_states(const Instruction& in) {
  const Kind* op = in.as<Kind>();
  if constexpr (requires { op->payload; }) return op != nullptr && op->payload.kind == Moved::states;
  return op != nullptr;
}

TEST(Offload, ProgramsPassTheChecksAndFaultsAreFound) {
  RunSpec spec;
  spec.policy.compute = DType::bf16;
  apply_stage(spec.policy, 3);
  Homes{Tier::disk, Tier::disk, true}.set(spec, {});
  const nn::LayerList model = test::model_of(spec);
  const Policy policy = normalized(spec.policy, comm::Mesh::flat(2));
  const UnitTable units = make_units(model, policy, comm::Mesh::flat(2));
  const Program good = compile({model, units, policy, comm::Mesh::flat(2), spec.batch});
  check_program(good, units);
  const auto expect_objection = [&](auto&& spoil) {
    Program program = good;
    spoil(program);
    EXPECT_THROW(check_program(program, units), Error);
  };
  const auto expect_objections = [&]<class Kind>(Kind) {
    expect_objection([&](Program& program) {  // an instruction is missing
      const auto found = std::ranges::find_if(program.instructions, moves_states<Kind>);
      ASSERT_NE(found, program.instructions.end());
      found->action = Start{};
    });
    expect_objection([&](Program& program) {  // it waits for nobody
      for (Instruction& in : program.instructions) {
        if (in.is<Kind>()) in.waits.clear(), in.carried.clear();
      }
    });
  };
  expect_objections(Read{});
  expect_objections(Fetch{});
  expect_objections(Store{});
  expect_objections(Write{});
  expect_objections(Update{});
}

// An update that is refused is refused on the thread that queues its lane, while later steps are launched.
TEST(Offload, AFailureWhereALaneIsQueuedEndsTheRun) {
  const test::TempDir folder;
  for (int world : {1, 2}) {
    for (double cpu_share : {0.0, 0.5}) {
      RunSpec spec;
      spec.world = world;
      spec.policy.compute = DType::bf16;
      apply_stage(spec.policy, 2);
      Homes{Tier::host, Tier::device, true, 1, cpu_share}.set(spec, folder.path());
      comm::run_thread_ranks(world, {.deadline = std::chrono::seconds(20)}, [&](comm::World& ranks) {
        Engine engine(test::model_of(spec), test::options_of(spec), ranks);
        engine.load(spec.values);
        const test::OwnedBatch batch = test::make_batch(spec.batch, spec.shape.vocab, 0, ranks.rank());
        const std::vector<MicroBatch> views{batch.view()};
        const auto train = [&](int64_t wrong_from) {
          for (int64_t step = 1; step < 8; ++step) {
            engine.submit(views, {.hyper = {.lr = 1e-2f, .step = step < wrong_from ? step : 0}, .clip = 1});
            engine.collect();
          }
        };
        try {
          train(3);
          ADD_FAILURE() << "world " << world << ": steps without a number were taken";
        } catch (const Error& error) {
          // With two ranks the other's failure may be heard of first.
          EXPECT_TRUE(error.kind() == ErrorKind::internal || (world > 1 && error.kind() == ErrorKind::peer));
          EXPECT_NE(std::string(error.what()).find("step: got 0"), std::string::npos) << error.what();
        }
        EXPECT_THROW(engine.weights_hash(), Error);
      });
    }
  }
}

}  // namespace
}  // namespace zeno::zero
