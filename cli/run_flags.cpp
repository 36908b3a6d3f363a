#include "cli/run_flags.h"

#include <CLI/CLI.hpp>

#include "zeno/base/log.h"
#include "zeno/train/config_keys.h"

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

}  // namespace

void RunFlags::add_to(CLI::App& app) {
  name_ = app.get_name();
  app.add_option("--config", config, "DeepSpeed JSON (or base64 of one); flags win over it");
  for (const train::ConfigKey& key : train::config_keys()) {
    if (key.flag.empty()) continue;
    const auto record = [this, &key](const std::string& value) {
      overrides.push_back({key.path, value, key.flag});
    };
    if (key.type == train::KeyType::boolean) {
      // CLI11 counts flags behind a ! backwards.
      const std::string names = key.flag_off.empty() ? key.flag : key.flag + ",!" + key.flag_off;
      app.add_flag_function(
          names, [record](int64_t count) { record(count > 0 ? "true" : "false"); }, key.note);
    } else if (key.type == train::KeyType::texts) {
      app.add_option_function<std::vector<std::string>>(
          key.flag,
          [record](const std::vector<std::string>& values) {
            for (const std::string& value : values) record(value);
          },
          key.note);
    } else {
      CLI::Option* option = app.add_option_function<std::string>(key.flag, record, key.note);
      if (!key.flag_alone.empty()) option->expected(0, 1)->default_str(key.flag_alone);
    }
  }
}

train::ParsedConfig RunFlags::parse() const {
  train::ParsedConfig parsed = train::load_config(config, overrides);
  for (const std::string& warning : parsed.warnings) log_warning("{}", warning);
  for (const std::string& note : parsed.notes) log_info("note: {}", note);
  parsed.command = command_text(words());
  return parsed;
}

std::vector<std::string> RunFlags::words() const {
  std::vector<std::string> words{name_};
  if (!config.empty()) words.insert(words.end(), {"--config", config});
  for (const train::FlagOverride& flag : overrides) {
    const train::ConfigKey* key = train::find_key(flag.key);
    const bool off = key != nullptr && !key->flag_off.empty() && flag.value == "false";
    words.push_back(off ? key->flag_off : flag.flag);
    if (key == nullptr || key->type != train::KeyType::boolean) words.push_back(flag.value);
  }
  return words;
}

std::string command_text(const std::vector<std::string>& words) {
  std::string text = "zeno";
  for (const std::string& word : words) text += " " + shell_word(word);
  return text;
}

}  // namespace zeno::cli
