// Whole training runs of a tiny model inside this process, ranks as threads: what `zeno train` does with the
// same flags, without starting a program.
#pragma once

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/plain_flags.h"
#include "tests/support/temp_dir.h"
#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/config/config_keys.h"
#include "zeno/config/config_parser.h"
#include "zeno/data/chat/presets.h"
#include "zeno/data/tokenizer.h"
#include "zeno/model/init.h"
#include "zeno/train/trainer.h"

namespace zeno::test {

// "--stage 3 --reproducible" as the command line reads it.
inline config::ParsedConfig parse_flags(const std::string& text) {
  std::vector<config::FlagOverride> flags;
  std::string config;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (word == "--config") {
      words >> config;
      continue;
    }
    const config::ConfigKey* found = nullptr;
    for (const config::ConfigKey& key : config::config_keys()) {
      if (key.flag == word || (!key.flag_off.empty() && key.flag_off == word)) found = &key;
    }
    ensure(found != nullptr, "no flag {}", word);
    std::string value = word == found->flag_off ? "false" : "true";
    if (found->type != config::KeyType::boolean) words >> value;
    flags.push_back({found->path, value, word});
  }
  return config::load_config(config, flags);
}

class SmallRuns {
 public:
  SmallRuns() {
    set_log_level(LogLevel::error);
    model::InitOptions options;
    options.hidden = 32;
    options.layers = 2;
    options.kv_heads = 2;
    options.intermediate = 48;
    options.vocab = 300;
    model::init_folder(options, {data::byte_tokenizer_json(300), data::preset_source("chatml").value()},
                       dir_.path() / "model");
  }
  ~SmallRuns() { set_log_level(LogLevel::info); }

  std::string path(const std::string& name) const { return (dir_.path() / name).string(); }
  const TempDir& dir() const { return dir_; }
  void copy(const std::string& from, const std::string& to) const {
    std::filesystem::remove_all(path(to));
    std::filesystem::copy(path(from), path(to), std::filesystem::copy_options::recursive);
  }
  Path checkpoint(const std::string& out, int64_t step) const {
    return dir_.path() / out / "checkpoints" / fmt::format("step-{:08}", step);
  }

  // Without --data in `flags`: generated text.
  report::RunSummary train(const std::string& out, const std::string& flags,
                           const std::function<void(train::Trainer&)>& loop = train::train_to_end) const {
    const bool own_data = flags.find("--data ") != std::string::npos;
    config::ParsedConfig parsed = parse_flags(
        "--model " + path("model") + " --seq-len 32 --device cpu --lr 1e-2 --out " + path(out) + " --cache " +
        path("cache") + (own_data ? " " : " --data generated ") + plain_flags("--lr " + flags) + flags);
    parsed.config.run.steps_per_print = 1'000'000;
    return train::train(parsed, loop);
  }
  // What the metrics say of steps, evaluations and the end, without times.
  std::vector<std::string> outcome(const std::string& out) const {
    std::vector<std::string> lines;
    std::ifstream file(path(out) + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      nlohmann::json kept = nlohmann::json::parse(line, nullptr, false);
      if (!kept.is_object()) continue;  // just being written
      for (const char* name : {"tokens_per_s", "step_ms", "data_wait_ms", "exposed_comm_ms", "eval_ms",
                               "bytes_gathered", "bytes_reduced", "peak_bytes", "advice"})
        kept.erase(name);
      lines.push_back(kept.dump());
    }
    return lines;
  }

 private:
  TempDir dir_;
};

}  // namespace zeno::test
