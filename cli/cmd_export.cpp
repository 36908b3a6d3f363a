#include <CLI/CLI.hpp>

#include <cctype>
#include <charconv>
#include <memory>

#include "cli/commands.h"
#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/checkpoint/deepspeed_folder.h"
#include "zeno/checkpoint/state_file.h"
#include "zeno/model/adapter_config.h"
#include "zeno/model/export.h"
#include "zeno/train/saving/adapter_export.h"
#include "zeno/train/saving/resume.h"

namespace zeno::cli {
namespace {

struct ExportFlags {
  std::string source, out, base, dtype, max_shard_size = "5GB";
  bool merge = false, overwrite = false;
};

// "5GB", "500MB", "2GiB" or bytes, as transformers takes them.
uint64_t parse_size(const std::string& text) {
  constexpr std::pair<std::string_view, uint64_t> kUnits[] = {
      {"", 1},          {"B", 1},         {"KB", 1000},    {"MB", 1000 * 1000}, {"GB", 1000 * 1000 * 1000},
      {"KIB", 1 << 10}, {"MIB", 1 << 20}, {"GIB", 1 << 30}};
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(rest, text.data() + text.size());
  for (char& c : unit) c = char(std::toupper(static_cast<unsigned char>(c)));
  for (const auto& [name, factor] : kUnits) {
    const double bytes = number * double(factor);
    if (error == std::errc() && unit == name && bytes >= 1 && bytes < 1e18) return uint64_t(bytes);
  }
  fail(ErrorKind::usage, "[export] --max-shard-size: got {}, expected a size such as 5GB or 500MiB", text);
}

bool is_adapter(const Path& folder) {
  return file_exists(folder / "adapter_config.json") && !file_exists(folder / "config.json");
}

// Ours or DeepSpeed's. The Hugging Face trainer puts a model beside DeepSpeed's: without --base, it is meant.
bool is_checkpoint_folder(const ExportFlags& flags) {
  const Path folder = flags.source;
  if (file_exists(folder / checkpoint::kManifestName)) return true;
  const bool model = file_exists(folder / "config.json") && flags.base.empty();
  return !model && !flags.merge && checkpoint::find_deepspeed(folder).has_value();
}

// A checkpoint of ours knows the folder its run started from, which has config and tokenizer.
void set_checkpoint(const ExportFlags& flags, model::FolderExport& options) {
  options.checkpoint = flags.source;
  const bool own = file_exists(options.checkpoint / checkpoint::kManifestName);
  require(own || !flags.base.empty(), ErrorKind::usage,
          "[export] {}: is a DeepSpeed checkpoint, which has no config.json; name the folder of the model it "
          "started from with --base",
          flags.source);
  options.source = flags.base.empty() ? Path(train::base_model_of(flags.source)) : Path(flags.base);
  require(file_exists(options.source / "config.json"), ErrorKind::usage,
          "[export] {}: the run started from {}, where there is no config.json; name the folder with --base",
          flags.source, options.source.string());
}

void run(const ExportFlags& flags) {
  model::FolderExport options{.source = flags.source,
                              .adapter = {},
                              .out = flags.out,
                              .dtype = {},
                              .max_shard_bytes = parse_size(flags.max_shard_size),
                              .overwrite = flags.overwrite};
  if (!flags.dtype.empty()) {
    options.dtype = parse_dtype(flags.dtype);
    require(options.dtype && is_float(*options.dtype), ErrorKind::usage,
            "[export] --dtype: got {}, expected fp32, bf16 or fp16", flags.dtype);
  }
  require(
      flags.merge || !is_adapter(flags.source), ErrorKind::usage,
      "[export] {}: is an adapter, expected a model folder; merge it into its model with --merge --base DIR",
      flags.source);
  const bool is_checkpoint = is_checkpoint_folder(flags);
  require(flags.merge || is_checkpoint || flags.base.empty(), ErrorKind::usage,
          "[export] --base: is only for --merge and for checkpoints");
  const bool own = file_exists(Path(flags.source) / checkpoint::kManifestName);
  if (own && train::holds_adapter(flags.source)) {
    train::export_adapter({flags.source, flags.base, flags.out, flags.overwrite});
    log_info("wrote {}, an adapter (merge it into its model: zeno export {} DIR --merge)", flags.out,
             flags.out);
    return;
  }
  if (is_checkpoint) set_checkpoint(flags, options);
  if (flags.merge) {
    options.adapter = flags.source;
    options.source = flags.base.empty() ? model::load_adapter_config(flags.source).base_model : flags.base;
    require(file_exists(options.source / "config.json"), ErrorKind::usage,
            "[export] --base: got {}, expected the folder of the model that the adapter was trained on",
            options.source.empty() ? "nothing" : options.source.string());
  }
  model::export_folder(options);
  log_info("wrote {}", flags.out);
}

}  // namespace

void add_export(CLI::App& app) {
  CLI::App* command = app.add_subcommand("export", "write a model folder that transformers can load");
  auto flags = std::make_shared<ExportFlags>();
  command
      ->add_option("source", flags->source,
                   "a model folder or a checkpoint (also DeepSpeed's); with --merge, an adapter folder")
      ->required();
  command->add_option("out", flags->out, "folder to create")->required();
  command->add_option("--dtype", flags->dtype, "dtype of the weights; defaults to that of the source")
      ->type_name("NAME:{fp32,bf16,fp16}");
  command
      ->add_option("--max-shard-size", flags->max_shard_size, "split weights into files of at most this size")
      ->type_name("SIZE");
  command->add_flag("--merge", flags->merge, "merge the adapter into its model");
  command
      ->add_option("--base", flags->base, "model of an adapter or checkpoint; defaults to the one it names")
      ->type_name("DIR");
  command->add_flag("--overwrite", flags->overwrite, "replace an existing model");
  command->callback([flags] { run(*flags); });
}

}  // namespace zeno::cli
