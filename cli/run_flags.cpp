#include "cli/run_flags.h"

#include <CLI/CLI.hpp>

#include "cli/help_format.h"
#include "zeno/base/log.h"
#include "zeno/config/flag_groups.h"

namespace zeno::cli {
namespace {

// As a shell takes it for one word.
std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,+@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  }
  return quoted + "'";
}

std::string type_name(const config::ConfigKey& key) {
  if (!key.takes.empty()) return key.takes;
  if (!key.choices.empty()) return choice_type(key.choices);
  switch (key.type) {
    case config::KeyType::integer:
      return "INT";
    case config::KeyType::number:
      return "NUMBER";
    case config::KeyType::dtype:
      return choice_type({"fp32", "bf16", "fp16"});
    default:
      return "TEXT";
  }
}

}  // namespace

void RunFlags::add_to(CLI::App& app) {
  name_ = app.get_name();
  app.set_help_all_flag("--help-all", "show all flags, including those for experts, and exit")
      ->group("Options");
  for (const config::FlagGroup& group : config::flag_groups()) {
    app.option_defaults()->group(std::string(group.title));
    if (group.title == config::kTrainingFlags)
      app.add_option("--config", config, "DeepSpeed JSON (or its base64); flags override it")
          ->type_name("FILE");
    for (const config::ConfigKey* key : group.keys) add_flag(app, *key);
  }
  app.option_defaults()->group("Options");
}

void RunFlags::add_flag(CLI::App& app, const config::ConfigKey& key) {
  const auto record = [this, &key](const std::string& value) {
    overrides.push_back({key.path, value, key.flag});
  };
  if (key.type == config::KeyType::boolean) {
    // CLI11 counts flags behind a ! backwards.
    const std::string names = key.flag_off.empty() ? key.flag : key.flag + ",!" + key.flag_off;
    app.add_flag_function(
        names, [record](int64_t count) { record(count > 0 ? "true" : "false"); },
        key.default_text == "true" ? key.note + " [default on]" : key.note);
    return;
  }
  CLI::Option* option;
  if (key.type == config::KeyType::texts) {
    option = app.add_option_function<std::vector<std::string>>(
        key.flag,
        [record](const std::vector<std::string>& values) {
          for (const std::string& value : values) record(value);
        },
        key.note);
  } else {
    option = app.add_option_function<std::string>(key.flag, record, key.note);
  }
  option->type_name(type_name(key));
  if (key.flag_alone.empty())
    option->default_str(config::show_default(key));
  else  // CLI11 takes the default of an option for its value when it stands alone
    option->expected(0, 1)
        ->default_str(key.flag_alone)
        ->description(
            fmt::format("{} [default {}; alone {}]", key.note, config::show_default(key), key.flag_alone));
}

config::ParsedConfig RunFlags::parse() const {
  config::ParsedConfig parsed = config::load_config(config, overrides);
  for (const std::string& warning : parsed.warnings) log_warning("{}", warning);
  for (const std::string& note : parsed.notes) log_info("note: {}", note);
  parsed.command = command_text(words());
  return parsed;
}

std::vector<std::string> RunFlags::words() const {
  std::vector<std::string> words{name_};
  if (!config.empty()) words.insert(words.end(), {"--config", config});
  for (const config::FlagOverride& flag : overrides) {
    const config::ConfigKey* key = config::find_key(flag.key);
    const bool off = key != nullptr && !key->flag_off.empty() && flag.value == "false";
    words.push_back(off ? key->flag_off : flag.flag);
    if (key == nullptr || key->type != config::KeyType::boolean) words.push_back(flag.value);
  }
  return words;
}

std::string command_text(const std::vector<std::string>& words) {
  std::string text = "zeno";
  for (const std::string& word : words) text += " " + shell_word(word);
  return text;
}

}  // namespace zeno::cli
