#include "zeno/config/flag_groups.h"

#include <set>

#include "zeno/base/error.h"

namespace zeno::config {
namespace {

struct NamedGroup {
  std::string_view title;
  std::vector<std::string_view> flags;
};

const NamedGroup kGroups[] = {
    {kModelFlags,
     {"--model", "--data", "--eval-data", "--eval-split", "--seq-len", "--data-format", "--chat-template",
      "--columns", "--loss-on", "--packing", "--too-long", "--max-samples", "--skip-bad-lines"}},
    {kTrainingFlags, {"--epochs",      "--steps",      "--lr",          "--schedule",       "--warmup",
                      "--micro-batch", "--grad-accum", "--train-batch", "--optimizer",      "--weight-decay",
                      "--clip",        "--dtype",      "--lora-rank",   "--lora-alpha",     "--lora-targets",
                      "--adapter",     "--eval-every", "--keep-best",   "--early-stopping", "--seed"}},
    {kMemoryFlags,
     {"--auto", "--recompute", "--offload-optimizer", "--offload-param", "--nvme-path", "--quantize-base",
      "--state-dtype", "--moment-dtype", "--device-mem", "--host-mem"}},
    {kParallelFlags,
     {"--ranks", "--stage", "--shard-group", "--pipe", "--context", "--device", "--launcher"}},
    {kSavingFlags, {"--save-every", "--keep-last", "--resume", "--max-restarts", "--save-deadline"}},
    {kOutputFlags, {"--out", "--log", "--trace"}},
};

}  // namespace

const std::vector<FlagGroup>& flag_groups() {
  static const std::vector<FlagGroup> groups = [] {
    std::vector<FlagGroup> all;
    std::set<std::string_view> named;
    for (const NamedGroup& group : kGroups) {
      all.push_back({group.title, {}});
      for (const std::string_view flag : group.flags) {
        const ConfigKey* key = find_flag(flag);
        ensure(key != nullptr && named.insert(flag).second, "[flags] {}: not in the table, or named twice",
               flag);
        all.back().keys.push_back(key);
      }
    }
    all.push_back({kExpertFlags, {}});
    for (const ConfigKey& key : config_keys()) {
      if (!key.flag.empty() && named.count(key.flag) == 0) all.back().keys.push_back(&key);
    }
    return all;
  }();
  return groups;
}

}  // namespace zeno::config
