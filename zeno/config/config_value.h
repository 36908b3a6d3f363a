// Converts a value as the user wrote it into one that fits its key, or says what is wrong with it.
#pragma once

#include <string>
#include <vector>

#include "zeno/config/config_keys.h"

namespace zeno::config {

// `where` names the place for messages: "ds.json:12: zero_optimization.stage". Numbers and booleans may be
// quoted, a list may be a single value: what DeepSpeed lets pass, and what a command-line flag looks like.
// Throws a usage Error; may add a warning.
JsonValue check_value(const ConfigKey& key, const JsonValue& written, const std::string& where,
                      std::vector<std::string>& warnings);

// True if a checked value changes nothing: null, the key's default, or a group size of one.
bool is_neutral(const ConfigKey& key, const JsonValue& value);

// True when some "enabled" inside is true, or when there is none and the block is not empty.
bool is_active_block(const JsonValue& block);

}  // namespace zeno::config
