#include "cli/run_flags.h"

#include <CLI/CLI.hpp>

#include "zeno/base/log.h"
#include "zeno/train/config_keys.h"

namespace zeno::cli {

void RunFlags::add_to(CLI::App& app) {
  app.add_option("--config", config, "DeepSpeed JSON (or base64 of one); flags win over it");
  for (const train::ConfigKey& key : train::config_keys()) {
    if (key.flag.empty()) continue;
    const auto record = [this, &key](const std::string& value) {
      overrides.push_back({key.path, value, key.flag});
    };
    if (key.type == train::KeyType::boolean) {
      app.add_flag_function(
          key.flag, [record](int64_t) { record("true"); }, key.note);
    } else if (key.type == train::KeyType::texts) {
      app.add_option_function<std::vector<std::string>>(
          key.flag,
          [record](const std::vector<std::string>& values) {
            for (const std::string& value : values) record(value);
          },
          key.note);
    } else {
      app.add_option_function<std::string>(key.flag, record, key.note);
    }
  }
}

train::ParsedConfig RunFlags::parse() const {
  train::ParsedConfig parsed = train::load_config(config, overrides);
  for (const std::string& warning : parsed.warnings) log_warning("{}", warning);
  for (const std::string& note : parsed.notes) log_info("note: {}", note);
  return parsed;
}

}  // namespace zeno::cli
