// DeepSpeed JSON and command-line flags → TrainConfig, with the origin of every value. Nothing is ignored
// silently: a key is honoured, noted as without effect, warned about, or refused. All errors are usage Errors
// that name the file and line or the flag. Functions are pure; safe from any thread.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/config/config.h"
#include "zeno/config/relaxed_json.h"

namespace zeno::config {

// A flag sets a key of the table: {"optimizer.params.lr", "1e-4", "--lr"}. Repeat it to append to a list.
struct FlagOverride {
  std::string key, value, flag;
};

struct ValueOrigin {
  enum class Kind { by_default, file, flag, automatic, derived, planned };  // planned: not chosen yet
  Kind kind = Kind::by_default;
  std::string text;  // "default", "ds.json:12", "flag --lr", "auto", "derived: …"
};

struct ParsedConfig {
  TrainConfig config;
  std::vector<std::string> warnings;  // one line each: place, key, what it means
  std::vector<std::string> notes;     // keys that were accepted and change nothing, and why
  std::map<std::string, ValueOrigin, std::less<>> origins;  // by key; a key not here has its default
  // Values of the file that a flag has replaced, by key.
  std::map<std::string, JsonValue, std::less<>> replaced;
  bool from_file = false;
  std::string command;  // the command line, for reports; empty if there was none

  bool given(std::string_view key) const;  // by the file or a flag
  bool is_auto(std::string_view key) const;
  bool settled(std::string_view key) const;  // given, or derived from what is
  void derive(std::string_view key, std::string_view why);
};

// `config` is a path or a base64 string as given to --config; empty: flags and defaults only.
ParsedConfig load_config(const std::string& config, std::span<const FlagOverride> flags);
ParsedConfig parse_config(const JsonDocument& document, std::span<const FlagOverride> flags);

// For print_config: values that the planner sets when the run starts are shown as open.
void mark_open(ParsedConfig& parsed);

// The effective value of every key and where it came from, as a table for --print-config.
std::string print_config(const ParsedConfig& parsed);

}  // namespace zeno::config
