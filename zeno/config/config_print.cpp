// --print-config: one line per key with its value and origin.
#include <fmt/format.h>

#include <algorithm>

#include "zeno/config/config_keys.h"
#include "zeno/config/config_parser.h"

namespace zeno::config {
namespace {

void append_list(std::string& out, std::string_view title, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  out += fmt::format("\n{}\n", title);
  for (const std::string& line : lines) out += fmt::format("  {}\n", line);
}

}  // namespace

void mark_open(ParsedConfig& parsed) {
  const auto mark = [&](const char* key) {
    if (!parsed.given(key))
      parsed.origins.insert_or_assign(
          key, ValueOrigin{ValueOrigin::Kind::planned, "chosen by the planner when the run starts"});
  };
  for (const char* key : {"zero_optimization.stage", "zero_optimization.overlap_comm",
                          "zero_optimization.offload_optimizer.device",
                          "zero_optimization.offload_param.device", "zeno.recompute", "zeno.order"})
    mark(key);
  const BatchConfig& batch = parsed.config.batch;
  if (batch.micro_batch > 0) return;  // then the batch follows from what is given
  if (batch.train_batch == 0) mark("train_batch_size");
  mark("train_micro_batch_size_per_gpu");
  mark("gradient_accumulation_steps");
}

std::string print_config(const ParsedConfig& parsed) {
  struct Line {
    std::string_view key;
    std::string value, origin;
  };
  std::vector<Line> lines;
  size_t key_width = 3, value_width = 5;
  for (const ConfigKey& key : config_keys()) {
    if (key.show == nullptr || !applies_to(key, parsed.config)) continue;
    const auto found = parsed.origins.find(key.path);
    const bool by_default = found == parsed.origins.end();
    const bool unset = by_default && key.default_text == "null";
    const bool open = !by_default && found->second.kind == ValueOrigin::Kind::planned;
    lines.push_back({key.path,
                     open    ? "open"
                     : unset ? "not set"
                             : key.show(parsed.config),
                     by_default ? std::string("default") : found->second.text});
    key_width = std::max(key_width, key.path.size());
    value_width = std::max(value_width, std::min<size_t>(lines.back().value.size(), 40));
  }
  std::string out = fmt::format("{:<{}}  {:<{}}  {}\n", "key", key_width, "value", value_width, "from");
  for (const Line& line : lines) {
    out += fmt::format("{:<{}}  {:<{}}  {}\n", line.key, key_width, line.value, value_width, line.origin);
  }
  append_list(out, "warnings", parsed.warnings);
  append_list(out, "notes", parsed.notes);
  return out;
}

}  // namespace zeno::config
