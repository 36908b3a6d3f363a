#include <CLI/CLI.hpp>

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <memory>

#include "cli/commands.h"
#include "cli/number_checks.h"
#include "cli/prompts.h"
#include "cli/text_stream.h"
#include "zeno/base/error.h"
#include "zeno/base/json_limits.h"
#include "zeno/base/log.h"
#include "zeno/base/python_json.h"
#include "zeno/generate/generator.h"
#include "zeno/model/adapter_weights.h"
#include "zeno/model/layers.h"
#include "zeno/model/weights.h"

namespace zeno::cli {
namespace {

using Json = nlohmann::ordered_json;

struct GenerateFlags {
  std::string model, adapter, prompt_file, system, chat_template, template_extra, chat_date, device = "auto",
                                                                                             dtype;
  std::vector<std::string> prompts, stops;
  bool chat = false, greedy = false;
  int64_t max_new_tokens = 256, context = 0, batch = 8;
  int threads = 0;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;
  uint64_t seed = 0;
};

// Defaults of the model (generation_config.json), then flags. As in transformers the most likely token is
// taken unless the folder says do_sample, or flags ask for a choice.
generate::SamplingOptions sampling_of(const GenerateFlags& flags) {
  generate::SamplingOptions o{.seed = flags.seed};
  bool choose = flags.temperature || flags.top_p || flags.top_k || flags.min_p;
  const Path path = Path(flags.model) / "generation_config.json";
  if (file_exists(path)) {
    const std::string text = read_file(path, 1 << 20);
    check_json_limits(text, fmt::format("[generate] {}", path.string()));
    const Json json = Json::parse(quote_special_numbers(text), nullptr, false);
    const auto read = [&](const char* key, auto& value) {
      if (json.is_object() && json.contains(key) && json[key].is_number()) json[key].get_to(value);
    };
    choose = choose || (json.is_object() && json.value("do_sample", Json(false)) == true);
    read("temperature", o.temperature);
    read("top_p", o.top_p);
    read("top_k", o.top_k);
    read("min_p", o.min_p);
    read("repetition_penalty", o.repetition_penalty);
  }
  o.temperature = flags.temperature.value_or(o.temperature);
  o.top_p = flags.top_p.value_or(o.top_p);
  o.top_k = flags.top_k.value_or(o.top_k);
  o.min_p = flags.min_p.value_or(o.min_p);
  o.repetition_penalty = flags.repetition_penalty.value_or(o.repetition_penalty);
  if (flags.greedy || !choose) o.temperature = 0;
  generate::check_sampling(o);
  return o;
}

Device device_of(const std::string& name) {
  const bool gpu = device_count(Device::Kind::cuda) > 0;
  require(name == "auto" || name == "cpu" || name == "cuda", ErrorKind::usage,
          "[generate] --device: got {}, expected auto, cpu or cuda", name);
  require(name != "cuda" || gpu, ErrorKind::usage,
          "[generate] --device cuda: got no usable GPU, expected one; use --device cpu");
  return gpu && name != "cpu" ? Device{Device::Kind::cuda, 0} : Device{};
}

// A model folder opened for generation, and what to ask it for.
class Session {
 public:
  explicit Session(const GenerateFlags& flags)
      : flags_(flags),
        encoder_(flags.model, flags.chat_template, flags.template_extra, flags.chat_date),
        tokenizer_(encoder_.tokenizer()) {
    options_.sampling = sampling_of(flags);
    options_.max_new_tokens = flags.max_new_tokens;
    options_.vocab = tokenizer_.vocab_size();
    options_.stops.assign(tokenizer_.stops().begin(), tokenizer_.stops().end());
    if (options_.stops.empty() && tokenizer_.eos()) options_.stops.push_back(*tokenizer_.eos());
    require(std::ranges::none_of(flags.stops, &std::string::empty), ErrorKind::usage,
            "[generate] --stop: is empty");
  }

  void run_prompts(const std::vector<Prompt>& prompts);
  void run_chat();

 private:
  // Room for the longest prompt and its answer, as far as the model goes.
  void open_model(int64_t sequences, int64_t context);
  // Generates from one prompt, text to stdout as it comes.
  std::string stream(const std::vector<int32_t>& prompt);
  void report(generate::Finish finish) const;

  const GenerateFlags& flags_;
  PromptEncoder encoder_;
  data::Tokenizer tokenizer_;
  generate::GenerateOptions options_;
  std::unique_ptr<generate::Generator> generator_;
};

void Session::open_model(int64_t sequences, int64_t context) {
  const model::ModelConfig config = model::load_config(flags_.model);
  generate::DecoderOptions options{
      .device = device_of(flags_.device),
      .dtype = {},
      .sequences = sequences,
      .context = std::min(flags_.context > 0 ? flags_.context : context, config.max_positions),
      .threads = flags_.threads};
  if (!flags_.dtype.empty()) {
    options.dtype = parse_dtype(flags_.dtype);
    require(options.dtype && is_float(*options.dtype), ErrorKind::usage,
            "[generate] --dtype: got {}, expected fp32, bf16 or fp16", flags_.dtype);
  }
  const auto make = [&](const auto& weights) {
    generator_ = std::make_unique<generate::Generator>(
        config,
        [&](const nn::Parameter& p, int64_t begin, int64_t end, float* out) {
          weights.read(p, begin, end, out);
        },
        options);
  };
  if (flags_.adapter.empty())
    make(model::WeightReader(flags_.model, model::parameter_table(model::build_layers(config, 1))));
  else
    make(model::MergedWeights(flags_.model, flags_.adapter));
}

std::string Session::stream(const std::vector<int32_t>& prompt) {
  TextStream text(tokenizer_, flags_.stops);
  std::string all;
  const auto show = [&](const std::string& piece) {
    std::cout << piece << std::flush;
    all += piece;
  };
  const auto results = generator_->generate({prompt}, options_, [&](size_t, int32_t token) {
    show(text.push(token));
    return !text.stopped() && std::cout.good();
  });
  show(text.finish());
  std::cout << std::endl;
  report(results[0].finish);
  return all;
}

void Session::report(generate::Finish finish) const {
  const generate::GenerateStats& s = generator_->stats();
  if (finish == generate::Finish::context)
    log_info("stopped at the end of the context, {} tokens", generator_->decoder().context());
  const double weights = double(generator_->decoder().weight_bytes()) * double(s.steps) / 1e9;
  log_info("prompt {} tokens in {:.2f} s; {} new tokens, {:.1f} tokens/s ({:.1f} GB/s of weights)",
           s.prompt_tokens, s.prompt_seconds, s.new_tokens,
           s.steps == 0 ? 0 : double(s.step_tokens) / s.step_seconds,
           s.steps == 0 ? 0 : weights / s.step_seconds);
}

void Session::run_prompts(const std::vector<Prompt>& prompts) {
  std::vector<std::vector<int32_t>> tokens;
  size_t longest = 0;
  for (const Prompt& prompt : prompts) {
    tokens.push_back(encoder_.encode(prompt));
    longest = std::max(longest, tokens.back().size());
  }
  open_model(std::min<int64_t>(flags_.batch, int64_t(prompts.size())),
             int64_t(longest) + flags_.max_new_tokens);
  if (flags_.prompt_file.empty() && prompts.size() == 1) {
    stream(tokens[0]);
    return;
  }
  std::vector<TextStream> streams(prompts.size(), TextStream(tokenizer_, flags_.stops));
  std::vector<std::string> texts(prompts.size());
  const auto results = generator_->generate(tokens, options_, [&](size_t i, int32_t token) {
    texts[i] += streams[i].push(token);
    return !streams[i].stopped();
  });
  for (size_t i = 0; i < prompts.size(); ++i) {
    texts[i] += streams[i].finish();
    Json line;
    if (prompts[i].messages.is_null())
      line["prompt"] = prompts[i].text;
    else
      line["messages"] = prompts[i].messages;
    line["completion"] = texts[i];
    line["finish"] = streams[i].stopped() ? "stop" : std::string(name_of(results[i].finish));
    std::cout << line.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
  }
  std::cout << std::flush;
  report(generate::Finish::length);
}

void Session::run_chat() {
  constexpr int64_t kPracticalContext = 4096;
  open_model(1, kPracticalContext);
  const bool terminal = isatty(STDIN_FILENO) != 0;
  Json messages = conversation(flags_.system, "");
  if (terminal) log_info("{}: /exit or Ctrl-D ends, /clear starts again", flags_.model);
  for (std::string line;;) {
    if (terminal) std::cout << "> " << std::flush;
    if (!std::getline(std::cin, line) || line == "/exit") break;
    if (line.empty()) continue;
    if (line == "/clear") {
      messages = conversation(flags_.system, "");
      continue;
    }
    messages.push_back({{"role", "user"}, {"content", line}});
    const std::string answer = stream(encoder_.encode({{}, messages}));
    messages.push_back({{"role", "assistant"}, {"content", answer}});
  }
  if (terminal) std::cout << std::endl;
}

void run(const GenerateFlags& flags) {
  require(flags.prompts.empty() || flags.prompt_file.empty(), ErrorKind::usage,
          "[generate] --prompt and --prompt-file: got both, expected one of them");
  std::vector<Prompt> prompts;
  for (const std::string& text : flags.prompts) prompts.push_back({text, nullptr});
  if (!flags.prompt_file.empty()) prompts = read_prompts(flags.prompt_file);
  require(!prompts.empty() || flags.chat, ErrorKind::usage,
          "[generate] prompt: got none, expected --prompt TEXT, --prompt-file FILE or --chat");
  for (Prompt& prompt : prompts) {
    if (flags.chat && prompt.messages.is_null()) prompt.messages = conversation(flags.system, prompt.text);
  }
  const bool templated = prompts.empty() || std::ranges::any_of(prompts, [](const Prompt& prompt) {
                           return !prompt.messages.is_null();
                         });
  require(
      templated || (flags.chat_template.empty() && flags.template_extra.empty() && flags.chat_date.empty()),
      ErrorKind::usage,
      "[generate] --chat-template, --template-extra, --chat-date: got plain prompts, to which no template is "
      "applied; add --chat");
  Session session(flags);
  prompts.empty() ? session.run_chat() : session.run_prompts(prompts);
}

}  // namespace

void add_generate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "continue texts or chat with a model");
  auto flags = std::make_shared<GenerateFlags>();
  command->add_option("--model", flags->model, "model folder")->type_name("DIR")->required();
  command->add_option("--adapter", flags->adapter, "LoRA adapter folder")->type_name("DIR");
  command->add_option("--prompt", flags->prompts, "text to continue; may be repeated");
  command
      ->add_option(
          "--prompt-file", flags->prompt_file,
          "file with one prompt per line, or JSONL with \"prompt\" or \"messages\"; answers are JSONL")
      ->type_name("FILE");
  command->add_flag("--chat", flags->chat, "use the chat template; without a prompt, start a conversation");
  command->add_option("--system", flags->system, "with --chat: the system message")->needs("--chat");
  command
      ->add_option("--chat-template", flags->chat_template,
                   "a preset or a .jinja file; defaults to the template of the model folder")
      ->type_name("NAME|FILE");
  command
      ->add_option("--template-extra", flags->template_extra,
                   "extra variables for the template: '{\"enable_thinking\": false}'")
      ->type_name("JSON");
  command
      ->add_option("--chat-date", flags->chat_date,
                   "YYYY-MM-DD for templates that ask for the date; defaults to today")
      ->type_name("DATE");
  command->add_option("--max-new-tokens", flags->max_new_tokens, "maximum length of an answer, in tokens")
      ->check(positive());
  command->add_option("--stop", flags->stops, "text that ends an answer; may be repeated");
  command->option_defaults()->group("Sampling (defaults to the settings of the model folder, else greedy)");
  command->add_flag("--greedy", flags->greedy, "always take the most likely token; same as --temperature 0");
  command->add_option("--temperature", flags->temperature,
                      "above 0: sample; 0: always take the most likely token");
  command->add_option("--top-k", flags->top_k, "sample from the k most likely tokens");
  command->add_option("--top-p", flags->top_p,
                      "sample from the most likely tokens whose probabilities add up to this value");
  command->add_option("--min-p", flags->min_p,
                      "sample from tokens with at least this fraction of the highest probability");
  command->add_option("--repetition-penalty", flags->repetition_penalty,
                      "above 1: penalise tokens that have already appeared");
  command->add_option("--seed", flags->seed, "seed for sampling")->check(not_negative());
  command->option_defaults()->group("Running");
  command->add_option("--device", flags->device, "device to run on")->type_name("NAME:{auto,cpu,cuda}");
  command->add_option("--dtype", flags->dtype, "dtype of the weights; defaults to that of the folder")
      ->type_name("NAME:{fp32,bf16,fp16}");
  command
      ->add_option("--context", flags->context,
                   "context length in tokens, prompt and answer together; 0: as needed")
      ->check(not_negative());
  command->add_option("--batch", flags->batch, "prompts of a file to run at the same time")
      ->check(positive());
  command->add_option("--threads", flags->threads, "CPU threads; 0: one per core")->check(not_negative());
  command->callback([flags] { run(*flags); });
}

}  // namespace zeno::cli
