// The groups in which help and docs/config.md list the flags of a run, in the order in which people need
// them. Built once on first use and constant after, so it may be read from any thread.
#pragma once

#include <string_view>
#include <vector>

#include "zeno/config/config_keys.h"

namespace zeno::config {

struct FlagGroup {
  std::string_view title;
  std::vector<const ConfigKey*> keys;
};

// The group for a command's own flags.
inline constexpr std::string_view kModelFlags = "Model and data";
inline constexpr std::string_view kTrainingFlags = "Training";
inline constexpr std::string_view kMemoryFlags = "Memory";
inline constexpr std::string_view kParallelFlags = "Parallelism";
inline constexpr std::string_view kSavingFlags = "Saving";
inline constexpr std::string_view kOutputFlags = "Output";
// What few people need: shown by --help-all only.
inline constexpr std::string_view kExpertFlags = "Expert";

// Every flag of the table once. A flag that no other group names is in the last one, Expert.
const std::vector<FlagGroup>& flag_groups();

}  // namespace zeno::config
