// The table of every config key Zeno knows: all of DeepSpeed's, and Zeno's own under "zeno". It drives
// parsing, defaults, type and range checks, the detection of unknown keys, --print-config and docs/config.md.
// Built once on first use and constant after, so it may be read from any thread.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/config/config.h"
#include "zeno/config/relaxed_json.h"

namespace zeno::config {

enum class KeyType { boolean, integer, number, text, choice, dtype, numbers, texts, block, open_block };

enum class KeyStatus {
  honoured,   // sets a field of TrainConfig
  no_effect,  // accepted: Zeno behaves as if it were set anyway, or there is nothing for it to change
  warned,     // accepted with a warning: it asks for something harmless that Zeno does not have
  refused,    // an error unless it has its default: it would change results, or memory the user relies on
  renamed,    // an old name of another key
};

struct ConfigKey {
  std::string path;  // "zero_optimization.stage"
  KeyType type = KeyType::boolean;
  KeyStatus status = KeyStatus::honoured;
  std::string default_text;  // as JSON; "null" when there is none
  std::string note;          // what it does, or why it has no effect
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::vector<std::string_view> choices;
  std::string flag;                       // "--stage": the command-line flag that sets it
  std::string flag_off;                   // "--no-auto": the flag that sets a boolean to false; empty: none
  std::string flag_alone;                 // what the flag means without a value; empty: it needs one
  std::string takes;                      // "DIR", in --help; empty: as the type says
  std::string auto_text;                  // value for "auto" if that is not the default
  std::string advice;                     // what to do about a wrong value; empty: no more than its choices
  std::vector<std::string> only_with;     // values of the block's "type" that read this key; empty: all
  std::vector<std::string> rename_to;     // keys that a renamed one sets
  std::string rename_true, rename_false;  // for a boolean that became a choice: the values
  bool rounds_down = false;               // accepts a fraction (HF Trainer writes 0.9 · hidden²)
  bool strict = true;                     // block: an unknown key inside is an error, as in DeepSpeed
  bool inherits = false;                  // its block's status counts, this row only checks the type
  void (*assign)(TrainConfig&, const JsonValue&) = nullptr;
  std::string (*show)(const TrainConfig&) = nullptr;

  ConfigKey& range(double low, double high = std::numeric_limits<double>::infinity());
  ConfigKey& set_flag(std::string_view name, std::string_view alone = "");
  ConfigKey& set_takes(std::string_view word);
  ConfigKey& set_flag_off(std::string_view name);
  ConfigKey& set_auto(std::string_view text);
  ConfigKey& set_only_with(std::vector<std::string> types);
  ConfigKey& set_choices(std::vector<std::string_view> names);
  ConfigKey& set_advice(std::string_view text);
  ConfigKey& set_rounds_down();
  ConfigKey& set_default(std::string_view text);  // shown instead of the field's default; "null": not set
  bool is_block() const { return type == KeyType::block || type == KeyType::open_block; }
  std::string_view leaf() const;    // "stage"
  std::string_view parent() const;  // "zero_optimization", or "" at the top
};

const std::vector<ConfigKey>& config_keys();
const ConfigKey* find_key(std::string_view path);
const ConfigKey* find_flag(std::string_view flag);

// The known key meant by an unknown one: within two edits in the same block, or the same name in one other
// block only (misplaced). The path is empty when there is none.
struct KeySuggestion {
  std::string path;
  bool misplaced = false;
};
KeySuggestion suggest_key(std::string_view unknown_path);
int edit_distance(std::string_view a, std::string_view b);

std::string_view name_of(KeyType type);
std::string_view name_of(KeyStatus status);
// "an integer from 0 to 3": what the key takes, for messages and docs.
std::string describe_values(const ConfigKey& key);
// "0.001" or "auto", as one would write it in a flag; empty if there is no fixed default, or the note gives
// it.
std::string show_default(const ConfigKey& key);

// False for a parameter of another optimizer or schedule than the chosen one.
bool applies_to(const ConfigKey& key, const TrainConfig& config);

bool equals_ignoring_case(std::string_view a, std::string_view b);

}  // namespace zeno::config
