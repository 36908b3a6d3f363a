// Steps of a GPU that are timed in passing: the same bits, the right steps, and what holds them up is told
// without --trace.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/homes.h"
#include "tests/support/slow_queue.h"
#include "tests/support/temp_dir.h"

namespace zeno::cuda_tests {
namespace {

using test::Homes;
using test::run_threads;
using test::RunResult;
using test::RunSpec;
using zero::StepTimes;
using zero::Timing;

class CudaStepClock : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count(Device::Kind::cuda) == 0) GTEST_SKIP() << "no GPU";
  }
  static RunSpec small(int world) {
    RunSpec spec;
    spec.shape = {.hidden = 64, .heads = 4, .blocks = 3, .vocab = 160, .max_seq = 128};
    spec.batch = {2, 80};
    spec.world = world;
    spec.device = {Device::Kind::cuda, 0};
    spec.steps = 40;
    spec.lr = 1e-3f;
    spec.policy.compute = DType::bf16;
    spec.policy.deterministic = true;
    spec.policy.prefetch = 8000;
    apply_stage(spec.policy, 3);
    return spec;
  }
  // Bound by what moves: 90 million parameters, two sequences.
  static RunSpec wide(int world) {
    RunSpec spec = small(world);
    spec.shape = {.hidden = 1024, .heads = 16, .blocks = 8, .vocab = 8192, .max_seq = 128};
    // Drawing every weight would take longer than the test.
    spec.values = [](const nn::Parameter& param, int64_t begin, std::span<float> out) {
      const bool ones = param.init.kind == nn::Init::Kind::ones;
      for (size_t i = 0; i < out.size(); ++i)
        out[i] = ones ? 1 : 0.02f * float((uint64_t(begin) + i) * 2654435761u % 257) / 128 - 0.02f;
    };
    spec.policy.offload.chunk = 4 << 20;
    return spec;
  }

  // What rank 0 saw of steps of which two are under way at a time.
  struct LateRun {
    std::vector<double> losses;
    std::vector<std::optional<StepTimes>> times;
    double all_ms = 0;   // from the first step queued to the last one collected
    double step_ms = 0;  // of all but the first
  };
  static LateRun run_late(const RunSpec& spec) {
    LateRun run;
    comm::run_thread_ranks(spec.world, {.deadline = std::chrono::seconds(60)}, [&](comm::World& world) {
      zero::Engine engine(test::model_of(spec), test::options_of(spec), world);
      engine.load(spec.values);
      const test::OwnedBatch batch = test::make_batch(spec.batch, spec.shape.vocab, 0, world.rank());
      const std::vector<zero::MicroBatch> views{batch.view()};
      const auto start = std::chrono::steady_clock::now();
      std::chrono::steady_clock::time_point begin;
      const auto collect = [&] {
        const zero::StepResult result = engine.collect();
        if (world.rank() != 0) return;
        if (run.losses.empty()) begin = std::chrono::steady_clock::now();
        run.losses.push_back(result.loss);
        run.times.push_back(result.times);
      };
      for (int step = 0; step < spec.steps; ++step) {
        engine.submit(views, {.hyper = {.lr = spec.lr, .step = step + 1}, .clip = 1});
        if (step > 0) collect();
      }
      collect();
      if (world.rank() != 0) return;
      const auto ms = [end = std::chrono::steady_clock::now()](auto from) {
        return std::chrono::duration<double, std::milli>(end - from).count();
      };
      run.all_ms = ms(start);
      run.step_ms = ms(begin) / (spec.steps - 1);
    });
    return run;
  }
  // The mean of what the timed steps had.
  static StepTimes mean(const LateRun& run) {
    StepTimes sum;
    double count = 0;
    for (const std::optional<StepTimes>& times : run.times) count += times.has_value();
    for (const std::optional<StepTimes>& times : run.times) {
      if (!times) continue;
      sum.compute += times->compute / count;
      sum.communication += times->communication / count;
      sum.link += times->link / count;
      sum.disk += times->disk / count;
      sum.other += times->other / count;
    }
    return sum;
  }
  // Of all timed steps together: steps follow each other on the compute lane, so it is part of `all_ms`.
  static double timed_ms(const LateRun& run) {
    double sum = 0;
    for (const std::optional<StepTimes>& times : run.times)
      if (times) sum += times->compute + times->exposed();
    return sum;
  }
  static void print(const char* what, const LateRun& run) {
    const StepTimes t = mean(run);
    fmt::print(
        "{:<24} {:8.3f} ms: compute {:.3f}, communication {:.3f}, link {:.3f}, disk {:.3f}, other {:.3f}\n",
        what, run.step_ms, t.compute, t.communication, t.link, t.disk, t.other);
  }

  test::TempDir folder_;
};

// The step before the first, with which an engine warms up, is step 0.
TEST_F(CudaStepClock, SamplesAreThoseOfTheRule) {
  for (int world : {1, 2}) {
    const LateRun run = run_late(small(world));
    for (int step = 0; step < int(run.times.size()); ++step)
      EXPECT_EQ(run.times[size_t(step)].has_value(), zero::is_timed(Timing::sampled, step + 1)) << step;
  }
}

TEST_F(CudaStepClock, TimingDoesNotChangeBits) {
  for (int world : {1, 2}) {
    for (Tier home : kTiers) {
      RunSpec spec = small(world);
      Homes{home, Tier::device, true}.set(spec, folder_.path());
      spec.timing = Timing::none;
      const RunResult reference = run_threads(spec);
      const LateRun late = run_late(spec);
      for (Timing timing : {Timing::sampled, Timing::every}) {
        spec.timing = timing;
        EXPECT_EQ(run_threads(spec), reference) << "world " << world << ", " << name_of(home);
        EXPECT_EQ(run_late(spec).losses, late.losses) << "world " << world << ", " << name_of(home);
      }
    }
  }
}

// A whole step as a graph: nothing to wait for, and all of the time is computation.
TEST_F(CudaStepClock, AReplayedStepIsTimedFromOutside) {
  RunSpec spec = wide(1);
  const LateRun run = run_late(spec);
  print("one lane, sampled", run);
  EXPECT_EQ(mean(run).exposed(), 0);
  EXPECT_GT(mean(run).compute, 0);
  EXPECT_LE(timed_ms(run), run.all_ms);
}

TEST_F(CudaStepClock, StatesOnTheHostAreTheLinksTrouble) {
  RunSpec spec = wide(1);
  spec.policy.offload.optimizer = Tier::host;
  spec.policy.offload.device_window = 8 << 20;
  const LateRun run = run_late(spec);
  print("states on the host", run);
  EXPECT_GT(mean(run).link, 0.3 * run.step_ms);
  EXPECT_LE(timed_ms(run), run.all_ms);
}

TEST_F(CudaStepClock, StatesOnDiskAreTheDisksTrouble) {
  RunSpec spec = small(1);
  spec.policy.offload.optimizer = Tier::disk;
  spec.policy.offload.chunk = 32768;
  spec.disk.folders = {folder_.path()};
  spec.disk.make_queue = [](int depth) -> std::unique_ptr<DiskQueue> {
    return std::make_unique<test::SlowQueue>(make_disk_queue(depth), 2);
  };
  const LateRun run = run_late(spec);
  print("states on disk", run);
  EXPECT_GT(mean(run).disk, 0.5 * run.step_ms);
}

// Two ranks on one GPU take turns, so how much of their communication is exposed cannot be foretold.
TEST_F(CudaStepClock, TimesAddUpToTheStep) {
  const LateRun run = run_late(wide(2));
  print("two ranks on one GPU", run);
  const StepTimes t = mean(run);
  EXPECT_GT(t.compute, 0);
  EXPECT_EQ(t.link, 0);
  EXPECT_EQ(t.disk, 0);
  EXPECT_LT(t.other, 0.15 * run.step_ms);
  EXPECT_LE(timed_ms(run), run.all_ms);
}

// Figures to read: what timing costs. Here a third of the steps are sampled; in a long run an eleventh of
// what timing every step costs remains.
TEST_F(CudaStepClock, PrintsWhatTimingCosts) {
  struct Case {
    const char* name;
    RunSpec spec;
  };
  std::vector<Case> cases{{"one lane, small", small(1)},
                          {"one lane, wide", wide(1)},
                          {"states on the host", wide(1)},
                          {"two ranks, stage 3", wide(2)}};
  cases[2].spec.policy.offload.optimizer = Tier::host;
  for (Case& c : cases) {
    c.spec.steps = 80;
    std::string line = fmt::format("{:<20}", c.name);
    for (const auto& [timing, name] : {std::pair{Timing::none, "not timed"},
                                       {Timing::sampled, "sampled"},
                                       {Timing::every, "every step"}}) {
      c.spec.timing = timing;
      line += fmt::format("  {} {:.3f} ms", name, run_late(c.spec).step_ms);
    }
    fmt::print("{}\n", line);
  }
}

// As a user sees it.
TEST_F(CudaStepClock, ARunWithoutTraceIsToldThatCopiesHoldItUp) {
  const std::string zeno = std::string(ZENO_BINARY_DIR) + "/zeno";
  const std::string model = (folder_.path() / "model").string(), out = (folder_.path() / "out").string();
  const test::CommandResult made = test::run_command(
      zeno + " init --arch llama --hidden 1024 --layers 16 --heads 16 --kv-heads 8 --vocab 512 --out " +
      model);
  ASSERT_EQ(made.exit_code, 0) << made.output;
  const test::CommandResult run =
      test::run_command(zeno + " train --model " + model +
                        " --data generated --dtype bf16 --device cuda --seq-len 128 --steps 100" +
                        " --micro-batch 1 --offload-optimizer cpu --no-auto --cache " +
                        (folder_.path() / "cache").string() + " --out " + out);
  ASSERT_EQ(run.exit_code, 0) << run.output;
  std::ifstream file(out + "/metrics.jsonl");
  std::string line, last;
  int timed = 0;
  for (; std::getline(file, line); last = line) {
    const nlohmann::json record = nlohmann::json::parse(line);
    timed += record.contains("exposed_comm_ms") && record.at("exposed_comm_ms").is_number();
  }
  const std::string advice = nlohmann::json::parse(last).at("advice");
  EXPECT_NE(advice.find("copies between host and GPU hold up"), std::string::npos) << advice;
  EXPECT_NE(run.output.find("copies between host and GPU hold up"), std::string::npos);
  EXPECT_GE(timed, 20);
  EXPECT_LT(timed, 35);
}

}  // namespace
}  // namespace zeno::cuda_tests
