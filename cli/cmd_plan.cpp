#include <sys/ioctl.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <memory>

#include "cli/commands.h"
#include "cli/number_checks.h"
#include "cli/plan_advice.h"
#include "cli/plan_question.h"
#include "cli/plan_sweep.h"
#include "zeno/base/error.h"
#include "zeno/base/host.h"
#include "zeno/base/quantity.h"
#include "zeno/base/workers.h"
#include "zeno/config/flag_groups.h"
#include "zeno/device/device.h"
#include "zeno/model/layers.h"
#include "zeno/plan/advice_reasons.h"
#include "zeno/plan/report/plan_json.h"
#include "zeno/plan/report/plan_page.h"
#include "zeno/plan/report/plan_text.h"
#include "zeno/plan/setting_choices.h"
#include "zeno/plan/timeline.h"
#include "zeno/train/run_engine.h"

namespace zeno::cli {
namespace {

double count_of(const nn::LayerList& layers) {
  double count = 0;
  for (const nn::Parameter& parameter : model::parameter_table(layers)) count += double(parameter.count());
  return count;
}

std::vector<std::string> notes_of(const PlanSubject& subject, const plan::PlanModel& model,
                                  const zero::EngineOptions& options, const plan::PlanReport& report) {
  std::vector<std::string> notes;
  const zero::Policy& policy = options.policy;
  notes.push_back(fmt::format("{}, {}, sequences of {} tokens, {} micro-batch{} in a step",
                              options.device.kind == Device::Kind::cuda ? "GPU" : "CPU",
                              name_of(policy.compute), options.shape.seq, policy.micro_batches,
                              policy.micro_batches == 1 ? "" : "es"));
  if (subject.params)
    notes.push_back(fmt::format(
        "model states by formula for {} parameters; everything else from a llama of {} blocks, hidden size "
        "{}, {} tokens ({} parameters)",
        count_in_words(*subject.params), subject.model.layers, subject.model.hidden, subject.model.vocab,
        count_in_words(count_of(model.layers))));
  if (report.limits.known()) {
    const auto size = [](size_t bytes) { return bytes > 0 ? format_bytes(bytes) : "any amount"; };
    notes.push_back(fmt::format("a rank may use {} of device and {} of host memory ({} ranks to a host)",
                                size(report.limits.device), size(report.limits.host), report.node_ranks));
  }
  if (policy.compute == DType::f32) return notes;
  if (!report.rows.empty()) {
    notes.push_back(fmt::format("gradients are kept in {}{}", name_of(policy.grad),
                                policy.grad == DType::f32
                                    ? ""
                                    : "; runs accumulate in fp32 by default, which adds 2 bytes for each"));
    return notes;
  }
  const double gradients = double(report.chosen.bytes.at(Tier::device, Purpose::gradients));
  const double other = double(size_of(policy.grad == DType::f32 ? policy.compute : DType::f32));
  const size_t change = size_t(std::abs(gradients * (other / double(size_of(policy.grad)) - 1)));
  notes.push_back(
      policy.grad == DType::f32
          ? fmt::format("fp32 accumulation of gradients takes {} of this "
                        "(data_types.grad_accum_dtype: \"{}\" would save it)",
                        format_bytes(change), name_of(policy.compute))
          : fmt::format("gradients are kept in {}; runs accumulate in fp32 by default, which adds {}",
                        name_of(policy.grad), format_bytes(change)));
  return notes;
}

std::string typed_command(const CLI::App& command) {
  std::vector<std::string> words{command.get_name()};
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0) continue;
    words.push_back(option->get_name());
    if (option->get_items_expected_max() == 0) continue;  // a switch
    const std::vector<std::string> values = option->results();
    words.insert(words.end(), values.begin(), values.end());
  }
  return command_text(words);
}

plan::TextStyle terminal_style() {
  plan::TextStyle style;
  winsize size{};
  style.colour = ::isatty(STDOUT_FILENO) == 1;
  if (style.colour && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    style.width = size.ws_col;
  return style;
}

// The setting of flags and config, as the run would complete it.
plan::PlanRow chosen_row(const PlanQuestion& q, const plan::PlanModel& model, zero::EngineOptions& options) {
  const config::TrainConfig& config = q.parsed.config;
  plan::MemoryLimits limits = q.limits;
  if (config.recompute.mode == config::RecomputeMode::automatic ||
      config.zero.offload_optimizer.device == config::OffloadDevice::automatic) {
    require(limits.device > 0, ErrorKind::usage,
            "[plan] auto: got no GPU to fill; say --device-mem 80GB --host-mem 512GB, plan with --recompute "
            "none, selective or full and --offload-optimizer none, cpu or nvme, or on the machine that "
            "trains");
    if (limits.host == 0) limits.host = SIZE_MAX;
    plan::place_states(config, q.layers, options, q.world, limits, true);
  }
  plan::PlanRow row;
  const int stage = int(config.zero.stage);
  row.setting = {stage, plan::homes_of(options.policy.offload, stage), options.policy.recompute,
                 options.shape.batch, options.policy.overlap};
  row.bytes = plan::plan_bytes(model, options, q.world);
  plan::set_missing(row, q.device, limits);
  return row;
}

void time_rows(const PlanQuestion& q, std::vector<plan::PlanRow>& rows) {
  Workers workers(available_cores());
  workers.for_each(int64_t(rows.size()), [&](int64_t i, int) {
    plan::PlanRow& row = rows[size_t(i)];
    const plan::StepTime time =
        plan::predict_step(q.layers, plan::with(q.options, row.setting), *q.machine, q.world);
    row.step_seconds = time.step_s;
    row.tokens_per_second = time.tokens_per_s;
  });
}

// Is one setting meant? Stages make no difference to one rank, so there the micro-batch says so.
bool fixed(const PlanQuestion& q) {
  return q.parsed.given("zero_optimization.stage") || (q.world == 1 && !q.batch_open);
}

plan::PlanReport answer(const PlanQuestion& q, const PlanFlags& flags) {
  const config::TrainConfig& config = q.parsed.config;
  const plan::PlanModel model{q.layers, q.subject.params};
  plan::PlanReport report;
  report.world = q.world;
  report.node_ranks = q.node_ranks;
  report.limits = q.limits;
  zero::EngineOptions options = q.options;
  report.chosen = chosen_row(q, model, options);
  report.params = q.subject.params.value_or(count_of(q.layers));
  report.title = fmt::format("{}{} of {} parameters on {} rank{}", model::name_of(q.subject.model.arch),
                             config.lora.rank > 0 ? " with adapters" : "", count_in_words(report.params),
                             q.world, q.world == 1 ? "" : "s");
  report.command = flags.command;
  if (!fixed(q) || flags.all) {
    const plan::PlanChoices choices = plan::open_choices(q.parsed, report.chosen.setting, q.batch_open,
                                                         q.device, q.world, report.limits, true);
    report.rows = plan::plan_rows(model, q.options, q.world, choices);
    if (q.machine) time_rows(q, report.rows);
  } else {
    report.title += fmt::format(", stage {}, micro-batch {}", config.zero.stage, q.options.shape.batch);
  }
  if (!flags.compare.empty())
    report.deepspeed =
        plan::compare_deepspeed(model, q.options, report.chosen.setting, q.world, report.node_ranks);
  report.notes = notes_of(q.subject, model, q.options, report);
  if (q.machine && report.rows.empty()) {
    const plan::StepTime time = plan::predict_step(q.layers, options, *q.machine, q.world);
    report.chosen.step_seconds = time.step_s;
    report.chosen.tokens_per_second = time.tokens_per_s;
    report.time = time;
    for (std::string& line : plan::describe_time(time, q.machine->name))
      report.notes.push_back(std::move(line));
  }
  return report;
}

void run(const PlanFlags& flags) {
  require(flags.compare.empty() || flags.compare == "deepspeed", ErrorKind::usage,
          "[plan] --compare: got {}, expected deepspeed", flags.compare);
  const PlanQuestion question = resolve(flags);
  if (!flags.goal.empty()) return show_advice(question, flags);
  if (!flags.sweep.empty()) return show_sweep(question, flags);
  const plan::PlanReport report = answer(question, flags);
  if (!flags.html.empty()) plan::write_page(flags.html, report);
  if (flags.json) {
    fmt::print("{}\n", plan::plan_json(report));
  } else {
    fmt::print("{}", plan::plan_text(report, flags.all, terminal_style()));
  }
}

}  // namespace

void add_plan(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "plan", "the memory and the time of a run before it starts; without --stage: a table of settings");
  auto flags = std::make_shared<PlanFlags>();
  command->add_option("--params", flags->params, "instead of a model: a number of parameters, 7.5e9 or 7.5B")
      ->type_name("COUNT");
  command->add_option("--goal", flags->goal, "advice: what to choose, and why")
      ->type_name("NAME:{fastest,largest-batch,smallest}");
  command
      ->add_option("--write-config", flags->write_config, "with --goal: write the choice as a DeepSpeed JSON")
      ->type_name("FILE")
      ->needs("--goal");
  command
      ->add_option("--machine", flags->machine,
                   "for the time: h100-8, h100-8x64, …, or a file of zeno doctor --measure; when not given: "
                   "this one")
      ->type_name("NAME|FILE");
  command
      ->add_option("--between-rate", flags->between_rate,
                   "GB/s between nodes for each rank; when not given: as the machine has it")
      ->default_str("")
      ->check(positive());
  command
      ->add_option("--ranks-per-host", flags->node_ranks,
                   "ranks that share the memory of a host; when not given: all, on GPUs at most 8")
      ->default_str("")
      ->check(positive());
  command->add_option("--sweep", flags->sweep, "time and goodput for these numbers of ranks: 64,1024 or all")
      ->type_name("LIST");
  command->add_option("--failure-hours", flags->failure_hours, "device-hours between failures, for --sweep")
      ->check(positive());
  command->add_option("--restart-s", flags->restart_s, "seconds from a failure until training resumes")
      ->check(not_negative());
  command->add_flag("--all", flags->all, "every row of the table, also where --stage fixes one");
  command->add_option("--compare", flags->compare, "show DeepSpeed's own estimate beside this one")
      ->type_name("deepspeed");
  command->add_option("--html", flags->html, "write the plan as a page")->type_name("FILE");
  command->add_flag("--json", flags->json, "machine-readable");
  command->option_defaults()->group("Instead of --model: a shape")->always_capture_default(false);
  flags->arch.add_to(*command);
  command->option_defaults()->always_capture_default();
  flags->run.add_to(*command);
  // The command of a run may be given with all its flags; those without an effect here are not shown.
  for (CLI::Option* option : command->get_options()) {
    if (option->get_group() == config::kSavingFlags || option->get_group() == config::kOutputFlags)
      option->group("");
  }
  command->callback([flags, command] {
    flags->command = typed_command(*command);
    run(*flags);
  });
}

}  // namespace zeno::cli
