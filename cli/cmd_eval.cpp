#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cli/commands.h"
#include "cli/run_flags.h"
#include "zeno/base/disk_watch.h"
#include "zeno/base/log.h"
#include "zeno/comm/world.h"
#include "zeno/report/json_text.h"
#include "zeno/train/eval_run.h"

namespace zeno::cli {
namespace {

// What makes a difference to an evaluation.
constexpr std::array kEvalFlags{
    "--config",         "--model",       "--adapter", "--data",        "--data-format", "--chat-template",
    "--template-extra", "--chat-date",   "--loss-on", "--packing",     "--too-long",    "--skip-bad-lines",
    "--columns",        "--max-samples", "--seq-len", "--micro-batch", "--dtype",       "--matmul-dtype",
    "--quantize-base",  "--stage",       "--ranks",   "--device",      "--cache",       "--deadline"};

void run(const RunFlags& flags, bool json) {
  const int rank = comm::launch_info().rank;
  set_log_rank(rank);                             // one process of many: rank 0 speaks for all
  std::optional<DiskWatch> watch(std::in_place);  // until there are ranks
  config::ParsedConfig parsed = flags.parse();
  watch.reset();
  const report::EvalRecord record = train::evaluate_model(std::move(parsed));
  if (rank != 0) return;
  if (json) {
    fmt::print(R"({{"loss":{},"perplexity":{},"token_accuracy":{},"tokens":{},"ms":{}}})"
               "\n",
               report::json_number(record.loss), report::json_number(record.perplexity),
               report::json_number(record.token_accuracy), record.tokens, report::json_number(record.ms));
    return;
  }
  fmt::print("loss {:.6f}  perplexity {:.4f}  token accuracy {:.2f} %  {} tokens in {:.1f} s\n", record.loss,
             record.perplexity, record.token_accuracy * 100, record.tokens, record.ms / 1000);
}

}  // namespace

void add_eval(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("eval", "compute loss, perplexity and token accuracy of a model on data");
  auto flags = std::make_shared<RunFlags>();
  auto json = std::make_shared<bool>(false);
  flags->add_to(*command);
  // A config of training may be given with all its flags; those without an effect here are not shown.
  for (CLI::Option* option : command->get_options()) {
    const std::string name = option->get_name();
    if (!name.starts_with("--help") && std::ranges::find(kEvalFlags, name) == kEvalFlags.end())
      option->group("");
  }
  command->get_option("--data")->description("evaluation files");
  command->add_flag("--json", *json, "print machine-readable JSON");
  command->callback([flags, json] { run(*flags, *json); });
}

}  // namespace zeno::cli
