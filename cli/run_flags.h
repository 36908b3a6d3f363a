// The flags that `train` and `plan` share. A flag is a key of the configuration table under another name, so
// parsing, checking and --print-config treat both alike.
#pragma once

#include <string>
#include <vector>

#include "zeno/config/config_keys.h"
#include "zeno/config/config_parser.h"

namespace CLI {
class App;
}

namespace zeno::cli {

class RunFlags {
 public:
  std::string config;                           // --config
  std::vector<config::FlagOverride> overrides;  // in the order of --help

  void add_to(CLI::App& app);
  // Reads the config file, applies the flags and logs warnings and notes.
  config::ParsedConfig parse() const;
  // The command as words, without the name of the program.
  std::vector<std::string> words() const;

 private:
  void add_flag(CLI::App& app, const config::ConfigKey& key);

  std::string name_;  // of the command
};

// "zeno train --model 'my model'": as one would type it; the name of the program is added.
std::string command_text(const std::vector<std::string>& words);

}  // namespace zeno::cli
