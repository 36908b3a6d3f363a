// Tables of a plan, and how they are shown.
#include "zeno/plan/plan_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/support/tiny_decoder.h"
#include "zeno/plan/estimate.h"
#include "zeno/plan/report/plan_json.h"
#include "zeno/plan/report/plan_page.h"
#include "zeno/plan/report/plan_text.h"

namespace zeno::plan {
namespace {

nn::LayerList small() {
  return test::tiny_decoder(test::Family::llama,
                            {.hidden = 64, .heads = 4, .blocks = 4, .vocab = 500, .max_seq = 64});
}

zero::EngineOptions row_options(int ranks = 4) {
  zero::EngineOptions options{
      .mesh = comm::Mesh::flat(ranks), .shape = {1, 64}, .device = {Device::Kind::cuda, 0}, .threads = 1};
  options.policy.compute = DType::bf16;
  options.policy.offload.chunk = 4096;
  return options;
}

PlanChoices few_choices() {
  PlanChoices choices = all_choices(Device::Kind::cuda, comm::Mesh::flat(4), {});
  choices.micro_batches = {1, 4};
  return choices;
}

PlanReport report_of(const nn::LayerList& layers, size_t device_limit) {
  PlanReport report;
  report.title = "a <small> model";
  report.notes = {"a note"};
  report.params = 1e6;
  report.ranks = 4;
  report.limits.device = device_limit;
  PlanChoices choices = few_choices();
  choices.limits = report.limits;
  report.rows = plan_rows({layers, {}}, row_options(), choices);
  report.chosen = report.rows.front();
  report.deepspeed = compare_deepspeed({layers, {}}, row_options(), {}, 4);
  return report;
}

// Between the leanest and the widest row.
size_t middle_limit(const nn::LayerList& layers) {
  std::vector<size_t> totals;
  for (const PlanRow& row : plan_rows({layers, {}}, row_options(), few_choices()))
    totals.push_back(row.bytes.total(Tier::device));
  std::ranges::sort(totals);
  return totals[totals.size() / 3];
}

TEST(PlanRows, EveryRowIsWhatARunOfItsSettingBooks) {
  const nn::LayerList layers = small();
  const auto rows = plan_rows({layers, {}}, row_options(), few_choices());
  EXPECT_EQ(rows.size(), size_t(1 + 3 + 3 + 4) * 3 * 2);
  for (const PlanRow& row : rows) {
    const zero::MemoryPlan plan = zero::plan_memory(layers, with(row_options(), row.setting));
    for (Tier tier : kTiers) EXPECT_EQ(row.bytes.total(tier), plan.ledger->booked(tier));
    EXPECT_EQ(row.bytes.model_states, plan.model_state_bytes);
    EXPECT_TRUE(row.fits());
  }
}

TEST(PlanRows, WithoutLimitsTheSmallestMicroBatchStandsForASetting) {
  for (const PlanRow& row : best_rows(plan_rows({small(), {}}, row_options(), few_choices()))) {
    EXPECT_EQ(row.setting.micro_batch, 1);
    EXPECT_EQ(row.setting.recompute, nn::Recompute::none);
  }
}

TEST(PlanRows, OnlyWhatMakesADifference) {
  EXPECT_EQ(all_choices(Device::Kind::cuda, {}, {}).stages, std::vector{0});
  EXPECT_EQ(all_choices(Device::Kind::cpu, comm::Mesh::flat(4), {}).homes,
            (std::vector{Homes::device, Homes::disk}));
  const auto alone = plan_rows({small(), {}}, row_options(1), all_choices(Device::Kind::cuda, {}, {}));
  EXPECT_EQ(alone.size(), size_t(4) * 3 * 4);  // one rank may give parameters away at stage 0
}

TEST(PlanRows, BestFirstAndMicroBatchesEndWhereNothingFits) {
  const nn::LayerList layers = small();
  const size_t limit = middle_limit(layers);
  const PlanReport report = report_of(layers, limit);
  const auto first_misfit = std::ranges::find_if(report.rows, [](const PlanRow& row) { return !row.fits(); });
  ASSERT_NE(first_misfit, report.rows.begin());
  ASSERT_NE(first_misfit, report.rows.end());
  EXPECT_TRUE(std::all_of(first_misfit, report.rows.end(), [](const PlanRow& row) { return !row.fits(); }));
  for (auto row = report.rows.begin(); row != first_misfit; ++row) {
    EXPECT_LE(row->bytes.total(Tier::device), limit);
    EXPECT_LE(row->setting.homes, std::prev(first_misfit)->setting.homes);
  }
  const std::vector<PlanRow> best = best_rows(report.rows);
  EXPECT_EQ(best.size(), 11u);  // stages × homes that there are
  EXPECT_TRUE(best.front().fits());
  // What does not fit comes by what is missing.
  EXPECT_TRUE(std::is_sorted(first_misfit, report.rows.end(), [](const PlanRow& a, const PlanRow& b) {
    return a.missing_device + a.missing_host < b.missing_device + b.missing_host;
  }));
}

TEST(PlanRows, ABareNumberTakesItsStatesFromTheFormula) {
  const nn::LayerList layers = small();
  for (int stage = 0; stage <= 3; ++stage) {
    const zero::EngineOptions stages = with(row_options(), {.stage = stage, .homes = Homes::optimizer_host});
    const PlanBytes bytes = plan_bytes({layers, 3e9}, stages), like = plan_bytes({layers, {}}, stages);
    EXPECT_NEAR(double(bytes.model_states), model_states(3e9, stages.policy, comm::Mesh::flat(4)).total(), 4);
    EXPECT_EQ(bytes.at(Tier::device, Purpose::moments), 0u);
    EXPECT_GT(bytes.at(Tier::host, Purpose::moments), 0u);
    EXPECT_EQ(bytes.at(Tier::device, Purpose::activations), like.at(Tier::device, Purpose::activations));
  }
}

// Of a bare number each stage has its share, and a row is the stage that needs most.
TEST(PlanRows, ARowIsTheNeediestStageOfAPipeline) {
  const nn::LayerList layers = small();
  zero::EngineOptions staged = with(options(), {.stage = 1, .homes = Homes::optimizer_host});
  staged.mesh = comm::mesh_of({.ranks = 12, .pipe = 3});
  for (const std::optional<double> params : {std::optional<double>(), {3e9}}) {
    const PlanModel model{layers, params};
    const std::vector<StageBytes> stages = plan_stages(model, staged);
    ASSERT_EQ(stages.size(), 3u);
    const PlanBytes row = plan_bytes(model, staged);
    const auto neediest = neediest_stages(Device::Kind::cuda, stages);
    double sum = 0, states = 0;
    for (const StageBytes& stage : stages) {
      sum += stage.params;
      states += double(stage.bytes.model_states);
      EXPECT_EQ(stage.stage.index, &stage - stages.data());
      for (Tier tier : kTiers) EXPECT_LE(stage.bytes.total(tier), row.total(tier));
    }
    for (Tier tier : kTiers) {
      const PlanBytes& most = stages[size_t(neediest[size_t(tier)])].bytes;
      EXPECT_EQ(row.by_purpose[size_t(tier)], most.by_purpose[size_t(tier)]);
    }
    EXPECT_NEAR(sum, params.value_or(count_of(layers)), 1);
    if (!params) continue;
    EXPECT_NEAR(states, model_states(3e9, staged.policy, comm::Mesh::flat(4)).total(), 1e3);
  }
}

TEST(PlanRows, HomesHaveNames) {
  EXPECT_EQ(homes_of({}, 0), Homes::device);
  EXPECT_EQ(homes_of({.optimizer = Tier::host}, 2), Homes::optimizer_host);
  EXPECT_EQ(homes_of({.params = Tier::host, .optimizer = Tier::host}, 3), Homes::all_host);
  EXPECT_EQ(homes_of({.optimizer = Tier::disk}, 1), Homes::disk);
  EXPECT_EQ(homes_of({.params = Tier::disk, .optimizer = Tier::disk}, 3), Homes::disk);
  EXPECT_EQ(homes_of({.params = Tier::host, .optimizer = Tier::disk}, 3), Homes::as_given);
}

TEST(PlanRows, FlagsSayTheSetting) {
  EXPECT_EQ(flags_of(Setting{.stage = 2, .micro_batch = 4}), "--stage 2 --micro-batch 4");
  EXPECT_EQ(flags_of(Setting{3, Homes::all_host, nn::Recompute::full, 1}),
            "--stage 3 --offload-optimizer cpu --offload-param cpu --recompute full --micro-batch 1");
  EXPECT_EQ(flags_of(Setting{3, Homes::disk, nn::Recompute::selective, 1}),
            "--stage 3 --offload-optimizer nvme --offload-param nvme --recompute selective --micro-batch 1");
  EXPECT_EQ(flags_of(Setting{1, Homes::disk, nn::Recompute::none, 1}),
            "--stage 1 --offload-optimizer nvme --micro-batch 1");
}

// Columns of a line on the screen: characters that are not the rest of one, without colour codes.
int columns(const std::string& line) {
  int count = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b')
      i = line.find('m', i);
    else if ((uint8_t(line[i]) & 0xc0) != 0x80)
      ++count;
  }
  return count;
}

TEST(PlanText, BarsFillTheTerminal) {
  const nn::LayerList layers = small();
  const PlanReport report = report_of(layers, middle_limit(layers));
  for (const bool colour : {false, true}) {
    const std::string text = plan_text(report, false, {.width = 140, .colour = colour});
    EXPECT_EQ(text.find('\x1b') != std::string::npos, colour);
    int bars = 0;
    size_t begin = 0;
    for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const std::string line = text.substr(begin, end - begin);
      if (line.find("yes") == std::string::npos && line.find(" no ") == std::string::npos) continue;
      ++bars;
      EXPECT_EQ(columns(line), 140) << line;
    }
    EXPECT_EQ(bars, 11) << text;
    EXPECT_NE(text.find("moments"), std::string::npos);
    EXPECT_NE(text.find("DeepSpeed"), std::string::npos);
  }
  PlanReport one = report;
  one.rows.clear();
  const std::string text = plan_text(one, false, {});
  EXPECT_NE(text.find("model states"), std::string::npos) << text;
}

TEST(PlanText, ABarIsAsLongAsItsBytes) {
  PlanBytes bytes;
  bytes.by_purpose[0][size_t(Purpose::parameters)] = 30;
  bytes.by_purpose[0][size_t(Purpose::gradients)] = 20;
  EXPECT_EQ(stacked_bar(bytes, Tier::device, 100, 80, 10, false), "███▓▓   │ ");
  EXPECT_EQ(stacked_bar(bytes, Tier::device, 40, 40, 10, false), "████████▓›");
  EXPECT_EQ(stacked_bar(bytes, Tier::host, 100, 0, 4, false), "    ");
}

TEST(PlanJson, HasEverything) {
  const nn::LayerList layers = small();
  const PlanReport report = report_of(layers, middle_limit(layers));
  const auto json = nlohmann::json::parse(plan_json(report));
  EXPECT_EQ(json.at("model_states_bytes"), report.chosen.bytes.model_states);
  EXPECT_EQ(json.at("bytes").at("device").at("total"), report.chosen.bytes.total(Tier::device));
  ASSERT_EQ(json.at("rows").size(), report.rows.size());
  const auto& last = json.at("rows").back();
  EXPECT_EQ(last.at("fits"), false);
  EXPECT_GT(last.at("missing_device_bytes"), 0);
  EXPECT_FALSE(last.contains("step_seconds"));
  EXPECT_EQ(json.at("deepspeed").size(), 5u);
  EXPECT_GT(json.at("deepspeed")[0].at("left_out_bytes").at("activations"), 0);
}

TEST(PlanPage, StandsAlone) {
  const nn::LayerList layers = small();
  PlanReport report = report_of(layers, middle_limit(layers));
  report.rows.front().step_seconds = 1.25;
  const std::string page = plan_page(report);
  EXPECT_NE(page.find("a &lt;small&gt; model"), std::string::npos);
  EXPECT_NE(page.find("1.250 s"), std::string::npos);
  EXPECT_NE(page.find("id=\"plan-device\""), std::string::npos);
  for (const char* outside : {"src=", "href=", "@import", "url("})
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
}

}  // namespace
}  // namespace zeno::plan
