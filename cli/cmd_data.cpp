#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/number_checks.h"
#include "cli/run_flags.h"
#include "zeno/base/error.h"
#include "zeno/config/engine_options.h"
#include "zeno/data/preview/preview_json.h"
#include "zeno/data/preview/preview_text.h"
#include "zeno/model/config.h"
#include "zeno/report/data_page.h"
#include "zeno/train/build_progress.h"
#include "zeno/train/dataset_options.h"
#include "zeno/train/launch.h"

namespace zeno::cli {
namespace {

// The flags of a run that decide what is seen.
constexpr std::array kPreviewFlags{
    "--config",    "--model",      "--data",           "--data-format", "--chat-template", "--template-extra",
    "--chat-date", "--loss-on",    "--packing",        "--too-long",    "--seq-len",       "--max-samples",
    "--columns",   "--eval-split", "--skip-bad-lines", "--cache",       "--seed"};
constexpr int64_t kTextSamples = 3, kPageSamples = 100;

struct DataFlags {
  RunFlags run;
  std::optional<int64_t> show;
  int64_t max_chars = 2000;
  std::string html, color = "auto";
  bool json = false;
};

// What training would open, from the same cache.
struct OpenData {
  data::TokenSource source;
  data::SampleList list;
  std::optional<data::Tokenizer> tokenizer;

  OpenData(const data::DatasetSpec& spec, const data::PackOptions& pack)
      : source(data::TokenSource::open(spec)), list(source, pack) {
    if (data::Tokenizer::exists(spec.model)) tokenizer = data::Tokenizer::open(spec.model);
  }
  OpenData(OpenData&&) = delete;  // the list points to the source

  void samples(int64_t most, const std::function<void(const data::PreviewSample&)>& show) const {
    data::preview_samples(list, tokenizer, most, show);
  }
};

void print_json(const OpenData& data, const data::PreviewCounts& counts, int64_t most) {
  fmt::print("{{\"samples\": [");
  std::string_view separator = "\n";
  data.samples(most, [&](const data::PreviewSample& sample) {
    fmt::print("{}{}", separator, data::sample_json(sample));
    separator = ",\n";
  });
  fmt::print("],\n\"counts\": {}}}\n", data::counts_json(counts));
}

void print_text(const OpenData& data, const data::PreviewCounts& counts, int64_t most,
                data::PreviewStyle style) {
  const int64_t shown = std::min(most, counts.total.samples);
  if (shown > 0)
    fmt::print("The first {} of {} samples; {}.\n\n", shown, counts.total.samples, data::style_note(style));
  data.samples(shown, [&](const data::PreviewSample& sample) {
    fmt::print("{}\n", data::sample_text(sample, style));
  });
  fmt::print("{}", data::counts_text(counts));
}

void write_page(const OpenData& data, const data::PreviewCounts& counts, const DataFlags& flags,
                const config::ParsedConfig& parsed) {
  const config::RunConfig& run = parsed.config.run;
  report::DataPage page{.title = fmt::format("{}{} for {}", Path(run.data.front()).filename().string(),
                                             run.data.size() > 1 ? ", …" : "",
                                             Path(run.model).lexically_normal().filename().string()),
                        .command = parsed.command,
                        .counts = counts,
                        .samples = {}};
  data.samples(flags.show.value_or(kPageSamples),
               [&](const data::PreviewSample& sample) { page.samples.push_back(sample); });
  report::write_data_page(flags.html, page);
}

void run(const DataFlags& flags) {
  config::ParsedConfig parsed = flags.run.parse();
  train::set_folders(parsed.config.run);
  const config::TrainConfig& config = parsed.config;
  require(!config.run.model.empty(), ErrorKind::usage, "[data] no model: give --model DIR");
  require(!config.run.data.empty(), ErrorKind::usage, "[data] no data: give --data FILE");
  require(!train::is_generated(config), ErrorKind::usage,
          "[data] --data generated: made-up tokens, there is nothing to show; give --data FILE");
  const model::ModelConfig model = model::load_config(config.run.model);
  const data::DatasetSpec spec = train::training_spec(config, model.vocab);
  data::prepare_dataset(spec, train::build_progress(0));
  const int64_t seq = config::sequence_length(config.run, model.max_positions);
  const OpenData data(spec, train::training_pack(config, seq));
  const data::PreviewCounts counts = data::count_samples(data.list);
  if (!flags.html.empty()) write_page(data, counts, flags, parsed);
  if (flags.json) return print_json(data, counts, flags.show.value_or(counts.total.samples));
  const bool terminal = flags.color == "auto" && ::isatty(STDOUT_FILENO) == 1;
  print_text(data, counts, flags.show.value_or(kTextSamples),
             {.colour = terminal || flags.color == "always", .max_chars = flags.max_chars});
}

}  // namespace

void add_data(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "data", "show samples as the model sees them and which tokens are trained; takes the flags of train");
  auto flags = std::make_shared<DataFlags>();
  flags->run.add_to(*command);
  // The flags of a run may all be given, so that its command needs one word changed; those without an effect
  // here are not shown.
  for (CLI::Option* option : command->get_options()) {
    const std::string name = option->get_name();
    if (name != "--help" && std::ranges::find(kPreviewFlags, name) == kPreviewFlags.end()) option->group("");
  }
  command
      ->add_option("--show", flags->show,
                   "samples to show; defaults to 3, with --html to 100, with --json to all")
      ->check(not_negative());
  command
      ->add_option("--max-chars", flags->max_chars, "characters to show of a sample in the terminal; 0: all")
      ->check(not_negative())
      ->capture_default_str();
  command->add_option("--html", flags->html, "write counts and samples as an HTML page");
  command->add_flag("--json", flags->json, "print JSON: the pieces of every sample, and counts");
  command
      ->add_option("--color", flags->color,
                   "auto: colours in a terminal; otherwise trained text is in brackets")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();
  command->callback([flags] { run(*flags); });
}

}  // namespace zeno::cli
