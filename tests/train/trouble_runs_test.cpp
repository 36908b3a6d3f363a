// Runs that are held up on purpose say by what: the loop of a training run over real engines, ranks as
// threads, with a layer, a disk or a data source that sleeps. On a machine that is busy with something else
// a run is held up by that too: then it is held up longer, until its own trouble is the larger one.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "tests/support/sanitized.h"
#include "tests/support/slow_queue.h"
#include "tests/support/small_run.h"
#include "tests/support/train_run.h"
#include "tests/support/wrapped_layer.h"
#include "zeno/train/step_loop.h"

namespace zeno::test {
namespace {

void rest(double ms) { std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms)); }

// Takes longer than it has to.
class SlowLayer final : public WrappedLayer {
 public:
  SlowLayer(std::unique_ptr<nn::Layer> inner, double ms) : WrappedLayer(std::move(inner)), ms_(ms) {}
  void forward(const nn::ForwardArgs& args, nn::Recompute recompute) const override {
    args.stream.launch([ms = ms_](Workers&) { rest(ms); });
    WrappedLayer::forward(args, recompute);
  }

 private:
  double ms_;
};

struct Held {
  RunSpec spec;
  int steps = 50;
  double seconds = 0;   // and so long, on whatever machine
  double layer_ms = 0;  // of rank 1, or of all
  bool all = false;
  double data_ms = 0, disk_ms = 0;

  Held times(double factor) const {
    Held more = *this;
    for (double* ms : {&more.layer_ms, &more.data_ms, &more.disk_ms}) *ms *= factor;
    return more;
  }
};

struct Outcome {
  std::vector<std::string> told;  // while it ran
  std::string advice;
  int count(std::string_view part) const {
    return int(
        std::ranges::count_if(told, [&](const std::string& line) { return line.find(part) != line.npos; }));
  }
  bool advises(std::string_view part) const { return advice.find(part) != std::string::npos; }
};

// The lines of the report's table of events.
std::vector<std::string> events_of(const std::string& report) {
  constexpr std::string_view kCell = "<td data-label=\"what\">";
  std::vector<std::string> lines;
  for (size_t at = 0; (at = report.find(kCell, at)) != std::string::npos;) {
    at += kCell.size();
    lines.push_back(report.substr(at, report.find("</td>", at) - at));
  }
  return lines;
}

class TroubleRuns : public testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::error); }
  void TearDown() override { set_log_level(LogLevel::info); }

  config::TrainConfig config_of(const Held& held) const {
    config::TrainConfig config;
    config.run.model = "model";
    config.run.out = dir_.path();
    config.run.cache = "/cache";
    config.run.steps_per_print = 1'000'000;
    config.batch = {
        .train_batch = 0, .micro_batch = held.spec.batch.batch, .grad_accum = held.spec.policy.micro_batches};
    return config;
  }

  void train_rank(const Held& held, comm::World& world, Outcome& outcome) {
    const RunSpec& spec = held.spec;
    set_log_rank(world.rank());
    nn::LayerList model = model_of(spec);
    if (held.layer_ms > 0 && (held.all || world.rank() == 1))
      model.layers[1] = std::make_unique<SlowLayer>(std::move(model.layers[1]), held.layer_ms);
    zero::Engine engine(std::move(model), options_of(spec), world);
    engine.load(spec.values);
    const config::TrainConfig config = config_of(held);
    const auto source =
        data::TokenSource::generated({.vocab_size = spec.shape.vocab, .tokens = 5000, .eos = 0});
    const data::SequenceTable table(source, {.seq_len = spec.batch.seq});
    const data::Loader loader(source, table,
                              {.micro_batch = spec.batch.batch, .rank = world.rank(), .ranks = world.size()});
    std::optional<report::Reporter> reporter;
    config::ParsedConfig parsed;
    parsed.config = config;
    if (world.rank() == 0) reporter.emplace(parsed, held.steps, 0, report::ReportData{});
    train::StepLoop loop(engine, world, config, loader, reporter ? &*reporter : nullptr);
    data::Prefetcher batches(
        [&](int64_t step) {
          rest(held.data_ms);
          return loader.step(step);
        },
        0);
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(held.seconds);
    const auto over = [&] { return loop.steps() >= held.steps && std::chrono::steady_clock::now() >= end; };
    while (!loop.run(batches, {.stop = over()}).stop) {
    }
    loop.finish();
    report::RunSummary summary;
    loop.add_to(summary);
    if (!reporter) return;
    outcome.advice = summary.advice = loop.advice(0);
    reporter->finish(summary, {}, {});
    outcome.told = events_of(read_file(dir_.path() / "report.html"));
  }

  Outcome run(Held held) {
    if (held.disk_ms > 0) {
      held.spec.disk.make_queue = [ms = held.disk_ms](int depth) -> std::unique_ptr<DiskQueue> {
        return std::make_unique<SlowQueue>(make_disk_queue(depth), ms);
      };
    }
    Outcome outcome;
    comm::run_thread_ranks(held.spec.world, {.deadline = std::chrono::seconds(60)},
                           [&](comm::World& world) { train_rank(held, world, outcome); });
    return outcome;
  }

  void expect(const Held& held, const std::function<bool(const Outcome&)>& expected) {
    Outcome outcome;
    for (const double factor : {1, 2, 4, 8, 16}) {
      outcome = run(held.times(factor));
      if (expected(outcome)) return;
    }
    ADD_FAILURE() << testing::PrintToString(outcome.told) << "\n" << outcome.advice;
  }

  TempDir dir_{memory_folder()};
};

TEST_F(TroubleRuns, ASlowRankIsNamedOnceAndCommunicationIsNotBlamed) {
  Held held{.layer_ms = 25};
  held.spec.world = 2;
  zero::apply_stage(held.spec.policy, 2);
  expect(held, [](const Outcome& out) {
    return out.count("rank 1 takes") == 1 && out.advises("rank 1 takes") &&
           !out.advises("communication is exposed");
  });
}

// As on GPUs, where not every step is timed: the first of them are enough for a verdict.
TEST_F(TroubleRuns, ASampleOfTheStepsNamesTheSlowRank) {
  Held held{.steps = 30, .layer_ms = 60};
  held.spec.world = 2;
  held.spec.timing = zero::Timing::sampled;
  zero::apply_stage(held.spec.policy, 2);
  expect(held,
         [](const Outcome& out) { return out.count("rank 1 takes") == 1 && out.advises("rank 1 takes"); });
}

TEST_F(TroubleRuns, EvenRanksAreNotSlow) {
  Held held{.layer_ms = 25, .all = true};
  held.spec.world = 2;
  zero::apply_stage(held.spec.policy, 2);
  expect(held, [](const Outcome& out) {
    return !out.advises("takes") && out.advises("Computation bounds the step");
  });
}

TEST_F(TroubleRuns, TinyComputationExposesCommunication) {
  if (kSanitized) GTEST_SKIP() << "computation is slow";
  Held held{.seconds = 1.5};
  held.spec.world = 2;
  held.spec.batch = {1, 2};
  held.spec.shape = {.hidden = 128, .blocks = 4};
  zero::apply_stage(held.spec.policy, 3);
  held.spec.policy.prefetch = 0;
  expect(held, [](const Outcome& out) {
    return out.count("communication is exposed for") >= 1 && out.advises("stage3_prefetch_bucket_size");
  });
}

TEST_F(TroubleRuns, ASlowDisk) {
  Held held{.disk_ms = 4};
  held.spec.policy.offload.optimizer = Tier::disk;
  held.spec.policy.offload.chunk = 8192;
  held.spec.disk.folders = {dir_.path() / "disk"};
  make_folders(held.spec.disk.folders[0]);
  expect(held, [](const Outcome& out) {
    return out.count("the disk holds up") >= 1 && out.advises("--offload-optimizer cpu");
  });
}

TEST_F(TroubleRuns, ASlowSourceOfSamples) {
  expect({.data_ms = 25}, [](const Outcome& out) {
    constexpr const char* kWaits = "of the step waits for samples";
    return out.count(kWaits) == 1 && out.advises(kWaits);
  });
}

TEST_F(TroubleRuns, AnAbsurdLossScaleIsToldEverywhere) {
  const SmallRuns runs;
  replace_file(
      runs.path("ds.json"),
      R"({"train_micro_batch_size_per_gpu": 1, "fp16": {"enabled": true, "initial_scale_power": 80}})");
  const report::RunSummary summary = runs.train("out", "--steps 30 --config " + runs.path("ds.json"));
  EXPECT_NE(summary.advice.find("30 of 30 steps were skipped because of overflow"), std::string::npos)
      << summary.advice;
  EXPECT_NE(summary.advice.find("--dtype bf16"), std::string::npos);
  EXPECT_NE(report::describe(summary, "model").find(summary.advice), std::string::npos);
  const std::string report = read_file(runs.path("out") + "/report.html");
  EXPECT_NE(report.find("5 of 5 steps were skipped because of overflow"), std::string::npos);
  EXPECT_NE(report.find("id=\"h-advice\""), std::string::npos);
  const std::string metrics = read_file(runs.path("out") + "/metrics.jsonl");
  const size_t last = metrics.rfind('\n', metrics.size() - 2) + 1;
  EXPECT_EQ(nlohmann::json::parse(metrics.substr(last)).at("advice"), summary.advice);
}

}  // namespace
}  // namespace zeno::test
