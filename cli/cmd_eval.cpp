#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/run_flags.h"
#include "zeno/base/log.h"
#include "zeno/comm/world.h"
#include "zeno/train/eval_run.h"
#include "zeno/train/json_text.h"

namespace zeno::cli {
namespace {

constexpr const char* kTrainingOnly[] = {"--train-batch",
                                         "--grad-accum",
                                         "--clip",
                                         "--offload-optimizer",
                                         "--optimizer",
                                         "--lr",
                                         "--weight-decay",
                                         "--schedule",
                                         "--warmup",
                                         "--min-lr-ratio",
                                         "--state-dtype",
                                         "--recompute",
                                         "--recompute-every",
                                         "--order",
                                         "--deterministic",
                                         "--reproducible",
                                         "--seed",
                                         "--out",
                                         "--steps",
                                         "--epochs",
                                         "--save-every",
                                         "--keep-last",
                                         "--keep-every",
                                         "--resume",
                                         "--log",
                                         "--trace",
                                         "--neftune",
                                         "--eval-data",
                                         "--eval-split",
                                         "--eval-every",
                                         "--eval-on-start",
                                         "--eval-max-samples",
                                         "--best-metric",
                                         "--keep-best",
                                         "--early-stopping",
                                         "--early-stopping-delta",
                                         "--lora-rank",
                                         "--lora-alpha",
                                         "--lora-dropout",
                                         "--lora-targets",
                                         "--modules-to-save",
                                         "--rslora",
                                         "--dora",
                                         "--spike-factor",
                                         "--max-bad-steps"};

void run(const RunFlags& flags, bool json) {
  const int rank = comm::launch_info().rank;
  set_log_rank(rank);  // one process of many: rank 0 speaks for all
  const train::EvalRecord record = train::evaluate_model(flags.parse());
  if (rank != 0) return;
  if (json) {
    fmt::print(R"({{"loss":{},"perplexity":{},"token_accuracy":{},"tokens":{},"ms":{}}})"
               "\n",
               train::json_number(record.loss), train::json_number(record.perplexity),
               train::json_number(record.token_accuracy), record.tokens, train::json_number(record.ms));
    return;
  }
  fmt::print("loss {:.6f}  perplexity {:.4f}  token accuracy {:.2f} %  {} tokens in {:.1f} s\n", record.loss,
             record.perplexity, record.token_accuracy * 100, record.tokens, record.ms / 1000);
}

}  // namespace

void add_eval(CLI::App& app) {
  CLI::App* command = app.add_subcommand("eval", "loss, perplexity and token accuracy of a model on data");
  auto flags = std::make_shared<RunFlags>();
  auto json = std::make_shared<bool>(false);
  flags->add_to(*command);
  // A config of training may be given; its flags that make no difference here are not shown.
  for (const char* flag : kTrainingOnly) command->get_option(flag)->group("");
  command->add_flag("--json", *json, "machine-readable");
  command->callback([flags, json] { run(*flags, *json); });
}

}  // namespace zeno::cli
