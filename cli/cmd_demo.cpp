// The whole path on a small model, no input needed: make a model, train it under stage 3 on two ranks, and
// check that stage 0 on the same data gives the same bits.
#include <CLI/CLI.hpp>

#include <memory>

#include "cli/commands.h"
#include "zeno/base/error.h"
#include "zeno/base/file.h"
#include "zeno/base/log.h"
#include "zeno/data/tokenizer.h"
#include "zeno/model/init.h"
#include "zeno/train/trainer.h"

namespace zeno::cli {
namespace {

std::string train_once(const std::string& folder, int stage, int64_t steps) {
  const std::string out = fmt::format("{}/stage{}", folder, stage);
  log_info("\n== train: stage {} on 2 ranks, bf16 ==", stage);
  const std::vector<train::FlagOverride> flags{{"zeno.model", folder + "/model", "--model"},
                                               {"zeno.data", "generated", "--data"},
                                               {"zeno.out", out, "--out"},
                                               {"zeno.ranks", "2", "--ranks"},
                                               {"zeno.device", "cpu", "--device"},
                                               {"zeno.steps", std::to_string(steps), "--steps"},
                                               {"zeno.seq_len", "128", "--seq-len"},
                                               {"zeno.dtype", "bf16", "--dtype"},
                                               {"zeno.trace", out + ".trace.json", "--trace"},
                                               {"zero_optimization.stage", std::to_string(stage), "--stage"},
                                               {"train_micro_batch_size_per_gpu", "4", "--micro-batch"},
                                               {"gradient_accumulation_steps", "2", "--grad-accum"},
                                               {"zeno.order", "vertical", "--order"},
                                               {"optimizer.params.lr", "2e-3", "--lr"}};
  train::train(train::load_config("", flags));
  const std::string metrics = read_file(out + "/metrics.jsonl");
  const size_t last = metrics.rfind('\n', metrics.size() - 2);
  return metrics.substr(last + 1, metrics.size() - last - 2);
}

void run(const std::string& folder, int64_t steps) {
  make_folders(folder);
  log_info("== init: a small Llama with random weights and a byte-level tokenizer ==");
  const model::InitOptions options{
      .hidden = 128, .layers = 4, .heads = 4, .kv_heads = 2, .vocab = 512, .overwrite = true};
  model::init_folder(options, data::byte_tokenizer_json(options.vocab), folder + "/model");
  const std::string sharded = train_once(folder, 3, steps);
  const std::string replicated = train_once(folder, 0, steps);
  ensure(sharded == replicated, "[demo] stage 3 ended with {}, stage 0 with {}", sharded, replicated);
  log_info("\nStage 3 and stage 0 ended with the same bits: {}", sharded);
  log_info(
      "The model is in {}/stage3, its metrics in metrics.jsonl beside it, the timeline of a step in "
      "{}/stage3.trace.json "
      "(open it at ui.perfetto.dev).",
      folder, folder);
}

}  // namespace

void add_demo(CLI::App& app) {
  CLI::App* command = app.add_subcommand("demo", "the whole path on a small model, no input needed");
  auto folder = std::make_shared<std::string>("zeno-demo");
  auto steps = std::make_shared<int64_t>(60);
  command->add_option("--out", *folder, "folder for everything it makes");
  command->add_option("--steps", *steps, "optimizer steps of each run");
  command->callback([folder, steps] { run(*folder, *steps); });
}

}  // namespace zeno::cli
