// The whole path on a small model, no input needed: a new model and a dataset of questions, a fine-tune under
// ZeRO-3 on several ranks, questions that were held back, before and after, and a Hugging Face folder at the
// end.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/demo_questions.h"
#include "cli/prompts.h"
#include "zeno/base/error.h"
#include "zeno/base/file.h"
#include "zeno/base/log.h"
#include "zeno/config/config_resolve.h"
#include "zeno/config/engine_options.h"
#include "zeno/data/chat/presets.h"
#include "zeno/data/tokenizer.h"
#include "zeno/generate/generator.h"
#include "zeno/model/export.h"
#include "zeno/model/init.h"
#include "zeno/model/layers.h"
#include "zeno/train/trainer.h"

namespace zeno::cli {
namespace {

constexpr int kRanks = 2;
constexpr int64_t kSequence = 256, kAnswerTokens = 64;
constexpr size_t kQuestionsShown = 6;  // questions printed before and after

struct DemoFlags {
  std::string folder = "zeno-demo";
  int64_t steps = 400;
};

void make_model(const std::string& folder) {
  const model::InitOptions options{.hidden = 128,
                                   .layers = 4,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .vocab = 512,
                                   .max_positions = kSequence,
                                   .overwrite = true};
  model::init_folder(
      options, {data::byte_tokenizer_json(options.vocab), data::preset_source("chatml").value()}, folder);
}

// The greedy answer to each question, all of them side by side.
std::vector<std::string> answers(const std::string& folder, const std::vector<DemoQuestion>& questions) {
  PromptEncoder encoder(folder, "");
  std::vector<std::vector<int32_t>> prompts;
  for (const DemoQuestion& item : questions)
    prompts.push_back(encoder.encode({item.question, conversation("", item.question)}));
  generate::Generator generator = generate::Generator::open(
      folder, {.device = {}, .dtype = {}, .sequences = int64_t(prompts.size()), .context = kSequence});
  generate::GenerateOptions options{.sampling = {.temperature = 0},
                                    .max_new_tokens = kAnswerTokens,
                                    .stops = {},
                                    .vocab = encoder.tokenizer().vocab_size()};
  options.stops.assign(encoder.tokenizer().stops().begin(), encoder.tokenizer().stops().end());
  std::vector<std::string> texts;
  for (const generate::Generation& result : generator.generate(prompts, options))
    texts.push_back(encoder.tokenizer().decode(result.tokens, true));
  return texts;
}

// Control characters of an untrained model would upset a terminal.
std::string printable(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 32 || static_cast<unsigned char>(c) > 126) c = '.';
  }
  return text;
}

// Prints the first few and returns how many of all are right.
size_t ask(const std::string& folder, const std::vector<DemoQuestion>& questions) {
  const std::vector<std::string> texts = answers(folder, questions);
  size_t right = 0;
  const size_t stride = std::max<size_t>(1, questions.size() / kQuestionsShown);
  for (size_t i = 0; i < questions.size(); ++i) {
    right += texts[i] == questions[i].answer;
    if (i % stride == 0 && i / stride < kQuestionsShown)
      log_info("  Q: {}\n  A: {}", questions[i].question, printable(texts[i]));
  }
  log_info("{} of {} correct", right, questions.size());
  return right;
}

config::ParsedConfig config_of(const DemoFlags& flags, int stage) {
  const std::string& folder = flags.folder;
  const std::vector<config::FlagOverride> overrides{
      {"zeno.model", folder + "/model", "--model"},
      {"zeno.data", folder + "/train.jsonl", "--data"},
      {"zeno.eval_data", folder + "/held_out.jsonl", "--eval-data"},
      {"zeno.eval_every", "100", "--eval-every"},
      {"zeno.out", folder + "/tuned", "--out"},
      {"zeno.cache", folder + "/cache", "--cache"},
      {"zeno.ranks", std::to_string(kRanks), "--ranks"},
      {"zeno.device", "cpu", "--device"},
      {"zeno.auto", "false", "--no-auto"},
      {"zeno.steps", std::to_string(flags.steps), "--steps"},
      {"zeno.seq_len", std::to_string(kSequence), "--seq-len"},
      {"zero_optimization.stage", std::to_string(stage), "--stage"},
      {"zero_optimization.stage3_param_persistence_threshold", "0", "config"},
      {"train_micro_batch_size_per_gpu", "8", "--micro-batch"},
      {"gradient_accumulation_steps", "1", "--grad-accum"},
      {"scheduler.type", "cosine", "--schedule"},
      {"scheduler.params.warmup_num_steps", "20", "--warmup"},
      {"optimizer.params.lr", "3e-3", "--lr"}};
  return config::load_config("", overrides);
}

// What each stage would take: the plan that the run is held to, to the byte.
void show_memory(const DemoFlags& flags) {
  log_info(
      "\n"
      "== memory per rank, {} ranks ==",
      kRanks);
  for (int stage = 0; stage < zero::kStages; ++stage) {
    config::ParsedConfig parsed = config_of(flags, stage);
    const model::ModelConfig model = model::load_config(parsed.config.run.model);
    config::resolve_batch(parsed, kRanks);
    config::resolve_model(parsed, model.hidden, model.layers);
    const comm::Mesh mesh = comm::mesh_of(config::mesh_request(parsed.config, kRanks, kRanks));
    const zero::MemoryPlan plan = zero::plan_memory(model::build_layers(model, kSequence),
                                                    config::engine_options(parsed.config, mesh, kSequence));
    log_info("stage {}: {} of weights, gradients and optimizer states, {} in total", stage,
             format_bytes(plan.model_state_bytes), format_bytes(plan.ledger->booked(Tier::device)));
  }
}

void run(const DemoFlags& flags) {
  const std::string& folder = flags.folder;
  make_folders(folder);
  log_info("== make a small Llama with random weights and a dataset of questions ==");
  make_model(folder + "/model");
  const DemoQuestions questions = demo_questions();
  replace_file(folder + "/train.jsonl", to_jsonl(questions.train));
  replace_file(folder + "/held_out.jsonl", to_jsonl(questions.held_out));
  log_info("{} questions to train on, {} held out", questions.train.size(), questions.held_out.size());
  show_memory(flags);
  log_info(
      "\n"
      "== before training: held-out questions ==");
  ask(folder + "/model", questions.held_out);
  log_info(
      "\n"
      "== fine-tune: ZeRO stage 3 on {} ranks ==",
      kRanks);
  train::train(config_of(flags, 3));
  log_info("\n== after ==");
  const size_t right = ask(folder + "/tuned", questions.held_out);
  const std::string exported = folder + "/exported";
  model::export_folder(
      {.source = folder + "/tuned", .adapter = {}, .out = exported, .dtype = DType::bf16, .overwrite = true});
  log_info(
      "\n"
      "{} of {} held-out questions are answered word for word.\n"
      "The tuned model in bf16, as a Hugging Face folder: {}\n"
      "The report, for a browser: {}/tuned/report.html\n"
      "Ask it something: zeno generate --model {} --chat --greedy --prompt \"What is the capital of "
      "France?\"",
      right, questions.held_out.size(), exported, folder, exported);
}

}  // namespace

void add_demo(CLI::App& app) {
  CLI::App* command = app.add_subcommand("demo", "run the whole path on a small model; needs no input");
  auto flags = std::make_shared<DemoFlags>();
  command->add_option("--out", flags->folder, "folder for all files of the demo")->type_name("DIR");
  command->add_option("--steps", flags->steps, "optimizer steps");
  command->callback([flags] { run(*flags); });
}

}  // namespace zeno::cli
