#include "zeno/train/run_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "zeno/base/quantity.h"
#include "zeno/checkpoint/safetensors_folder.h"
#include "zeno/config/config_keys.h"
#include "zeno/data/chat/presets.h"
#include "zeno/data/dataset/input_files.h"
#include "zeno/train/dataset_options.h"

namespace zeno::train {
namespace {

// Keys that may differ between hosts: paths (their files are compared instead) and settings of a host.
bool is_of_host(std::string_view key) {
  static constexpr std::array<std::string_view, 16> kKeys{
      "zeno.model",        "zeno.data",       "zeno.eval_data",     "zeno.adapter",
      "zeno.out",          "zeno.cache",      "zeno.log",           "zeno.trace",
      "zeno.done_file",    "zeno.device_mem", "zeno.host_mem",      "zeno.launcher",
      "zeno.max_restarts", "steps_per_print", "zeno.chat_template", "zeno.resume"};
  return std::ranges::find(kKeys, key) != kKeys.end() || key.ends_with("nvme_path") ||
         key.ends_with("snapshot_dir");
}

void add_value(std::vector<RunInput>& inputs, std::string name, std::string value, ErrorKind kind) {
  inputs.push_back({.name = name,
                    .shown = name,
                    .value = std::move(value),
                    .kind = kind,
                    .problem = {},
                    .file = {},
                    .rule = {}});
}

struct NamedFile {
  std::string name;
  Path path;
};

// These files share a budget for reading.
void add_files(std::vector<RunInput>& inputs, const std::vector<NamedFile>& files) {
  uint64_t bytes = 0;
  for (const NamedFile& file : files) bytes += size_of_file(file.path);
  const DigestRule rule = digest_rule(bytes, files.size());
  for (const NamedFile& file : files)
    inputs.push_back({.name = file.name,
                      .shown = file.path.string(),
                      .value = {},
                      .problem = {},
                      .file = file.path,
                      .rule = rule});
}

void add_config(std::vector<RunInput>& inputs, const config::ParsedConfig& parsed) {
  for (const config::ConfigKey& key : config::config_keys()) {
    if (key.show == nullptr || is_of_host(key.path) || !config::applies_to(key, parsed.config)) continue;
    add_value(inputs, key.path, key.show(parsed.config), ErrorKind::usage);
  }
}

void add_program(std::vector<RunInput>& inputs) {
  const Path self = "/proc/self/exe";
  std::error_code ignored;
  const Path path = std::filesystem::read_symlink(self, ignored);
  std::vector<RunInput> program;
  add_files(program, {{"the program", self}});
  program[0].shown = ignored ? self.string() : path.string();
  program[0].kind = ErrorKind::usage;
  inputs.push_back(program[0]);
}

// The files that a tokenizer and its chat templates are read from.
void add_tokenizer_files(std::vector<std::string>& names, const Path& folder) {
  names.insert(names.end(), {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                             "chat_template.jinja", "chat_template.json"});
  if (!file_exists(folder / "tokenizer.json"))
    names.insert(names.end(), {"vocab.json", "merges.txt", "added_tokens.json"});
  const Path more = "additional_chat_templates";
  if (!folder_exists(folder / more)) return;
  for (const std::string& name : list_folder(folder / more)) {
    if (name.ends_with(".jinja")) names.push_back((more / name).string());
  }
}

void add_model(std::vector<RunInput>& inputs, const Path& folder) {
  std::vector<std::string> names{"config.json", "generation_config.json"};
  add_tokenizer_files(names, folder);
  for (const Path& path : checkpoint::weight_files(folder)) names.push_back(path.filename().string());
  std::vector<NamedFile> files;
  for (const std::string& name : names) files.push_back({"model file " + name, folder / name});
  add_files(inputs, files);
}

void add_adapter(std::vector<RunInput>& inputs, const Path& folder) {
  if (folder.empty()) return;
  std::vector<NamedFile> files;
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors"})
    files.push_back({fmt::format("adapter file {}", name), folder / name});
  add_files(inputs, files);
}

void add_template(std::vector<RunInput>& inputs, const std::string& choice) {
  const bool preset = data::preset_source(choice).has_value();
  const bool file = !choice.empty() && !preset;
  add_value(inputs, "--chat-template",
            file     ? "a file"
            : preset ? choice
                     : "the model's own",
            ErrorKind::usage);
  if (file) add_files(inputs, {{"file of --chat-template", choice}});
}

// The folder may have another path on every host; its contents are compared where they are read.
void add_resume(std::vector<RunInput>& inputs, const std::string& resume) {
  add_value(inputs, "--resume",
            resume.empty()     ? "none"
            : resume == "auto" ? resume
                               : "a folder",
            ErrorKind::usage);
}

void add_data(std::vector<RunInput>& inputs, const std::string& flag, const data::DatasetSpec& spec) {
  std::vector<NamedFile> files;
  std::string problem;
  try {
    const data::InputFiles found = data::find_input_files(spec);
    const auto add = [&](const Path& path) {
      files.push_back({fmt::format("file {} of {}", files.size() + 1, flag), path});
    };
    for (const data::InputFile& file : found.to_build) add(file.path);
    for (const Path& path : found.token_files) add(path);
  } catch (const Error& error) {
    problem = error.what();  // the same on all ranks: reported when the data is read
  }
  add_value(inputs, flag,
            problem.empty() ? fmt::format("{} files", format_count(int64_t(files.size()))) : "unreadable",
            ErrorKind::data);
  inputs.back().problem = problem;
  add_files(inputs, files);
}

}  // namespace

std::vector<RunInput> run_inputs(const config::ParsedConfig& parsed) {
  const config::TrainConfig& config = parsed.config;
  std::vector<RunInput> inputs;
  add_program(inputs);
  add_config(inputs, parsed);
  add_model(inputs, config.run.model);
  add_adapter(inputs, config.lora.adapter);
  add_template(inputs, config.data.chat_template);
  add_resume(inputs, config.run.resume);
  if (!is_generated(config) && !config.run.data.empty()) add_data(inputs, "--data", training_spec(config, 0));
  if (const auto spec = evaluation_spec(config, 0)) add_data(inputs, "--eval-data", *spec);
  return inputs;
}

std::vector<RunInput> deepspeed_inputs(const checkpoint::DeepSpeedCheckpoint* checkpoint) {
  std::vector<RunInput> inputs;
  const std::string tag = checkpoint == nullptr ? "none" : checkpoint->folder().filename().string();
  add_value(inputs, "DeepSpeed's checkpoint of --resume", tag, ErrorKind::data);
  if (checkpoint == nullptr) return inputs;
  std::vector<NamedFile> files;
  for (const Path& path : std::set(checkpoint->files().begin(), checkpoint->files().end()))
    files.push_back({path.lexically_relative(checkpoint->folder()).string(), path});
  add_files(inputs, files);
  return inputs;
}

}  // namespace zeno::train
