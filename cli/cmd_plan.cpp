#include <sys/ioctl.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "cli/number_checks.h"
#include "cli/plan_advice.h"
#include "cli/plan_flags.h"
#include "cli/plan_sweep.h"
#include "zeno/base/error.h"
#include "zeno/config/flag_groups.h"
#include "zeno/plan/plan_answer.h"
#include "zeno/plan/report/plan_json.h"
#include "zeno/plan/report/plan_page.h"
#include "zeno/plan/report/plan_text.h"

namespace zeno::cli {
namespace {

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

void run(const PlanFlags& flags) {
  require(flags.compare.empty() || flags.compare == "deepspeed", ErrorKind::usage,
          "[plan] --compare: got {}, expected deepspeed", flags.compare);
  const plan::PlanQuestion question = question_of(flags);
  if (!flags.goal.empty()) return show_advice(question, flags);
  if (!flags.sweep.empty()) return show_sweep(question, flags);
  const plan::PlanReport report = plan::answer(
      question, {.all = flags.all, .deepspeed = !flags.compare.empty(), .command = flags.command});
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
      "plan", "show the memory and time of a run before it starts; without --stage, a table of settings");
  auto flags = std::make_shared<PlanFlags>();
  command->add_option("--params", flags->params, "number of parameters instead of a model, 7.5e9 or 7.5B")
      ->type_name("COUNT");
  command->add_option("--goal", flags->goal, "what to optimise for; says which setting to use, and why")
      ->type_name("NAME:{fastest,largest-batch,smallest}");
  command
      ->add_option("--write-config", flags->write_config,
                   "with --goal: write the setting as a DeepSpeed JSON")
      ->type_name("FILE")
      ->needs("--goal");
  command
      ->add_option("--machine", flags->place.machine,
                   "machine to time the run on: h100-8, h100-8x64, …, or a file of zeno doctor --measure; "
                   "defaults to this machine")
      ->type_name("NAME|FILE");
  command
      ->add_option("--between-rate", flags->place.between_rate,
                   "GB/s between nodes over each rail; defaults to the machine's rate")
      ->default_str("")
      ->check(positive());
  command
      ->add_option("--rails", flags->place.rails,
                   "network links of a node, which its ranks share; defaults to those of the machine")
      ->default_str("")
      ->check(positive());
  command
      ->add_option("--ranks-per-host", flags->place.node_ranks,
                   "ranks that share the memory of a host; defaults to all, on GPUs at most 8")
      ->default_str("")
      ->check(positive());
  command
      ->add_option("--sweep", flags->sweep,
                   "show time and goodput for these numbers of ranks: 64,1024 or all")
      ->type_name("LIST");
  command->add_option("--failure-hours", flags->failure_hours, "device-hours between failures, for --sweep")
      ->check(positive());
  command->add_option("--restart-s", flags->restart_s, "seconds from a failure until training resumes")
      ->check(not_negative());
  command->add_flag("--all", flags->all, "show every row of the table, even if --stage fixes one");
  command->add_option("--compare", flags->compare, "also show DeepSpeed's own estimate")
      ->type_name("deepspeed");
  command->add_option("--html", flags->html, "write the plan as an HTML page")->type_name("FILE");
  command->add_flag("--json", flags->json, "print machine-readable JSON");
  command->option_defaults()->group("Model shape, instead of --model")->always_capture_default(false);
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
