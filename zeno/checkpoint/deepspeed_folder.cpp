#include "zeno/checkpoint/deepspeed_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <map>
#include <string_view>

#include "zeno/base/error.h"
#include "zeno/base/file.h"
#include "zeno/base/utf8.h"

namespace zeno::checkpoint {
namespace {

constexpr std::string_view kModelSuffix = "_model_states.pt", kOptimizerSuffix = "_optim_states.pt";

// Takes a word from the front of a name.
bool take(std::string_view& name, std::string_view word) {
  if (!name.starts_with(word)) return false;
  name.remove_prefix(word.size());
  return true;
}

std::optional<int> take_number(std::string_view& name) {
  int value = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  name.remove_prefix(size_t(end - name.data()));
  return value;
}

bool is_state_file(std::string_view name) {
  return name.ends_with(kModelSuffix) || name.ends_with(kOptimizerSuffix);
}

// "[bf16_]zero_pp_rank_<rank>_mp_rank_<part>_…" or "mp_rank_<part>_…".
struct FileName {
  std::optional<int> rank;
  int part = 0;
  bool optimizer = false;
};
std::optional<FileName> parse_name(std::string_view name) {
  FileName parsed;
  if (!take(name, "bf16_")) take(name, "fp16_");
  if (take(name, "zero_pp_rank_")) {
    parsed.rank = take_number(name);
    if (!parsed.rank || !take(name, "_")) return std::nullopt;
  }
  if (!take(name, "mp_rank_")) return std::nullopt;
  const std::optional<int> part = take_number(name);
  if (!part || !is_state_file(name)) return std::nullopt;
  parsed.part = *part;
  parsed.optimizer = name.ends_with(kOptimizerSuffix);
  return name == (parsed.optimizer ? kOptimizerSuffix : kModelSuffix) ? std::optional(parsed) : std::nullopt;
}

void refuse_unsupported(const Path& folder, const std::string& name) {
  const auto refuse = [&](std::string_view what) {
    fail(ErrorKind::data,
         "[deepspeed] {}: {} is of a run with {}, which is not supported; expected data parallel training "
         "(ZeRO stages 0 to 3)",
         folder.string(), name, what);
  };
  if (name.find("expert_") != std::string::npos || name.starts_with("expp_rank_")) refuse("experts (MoE)");
  if (name.starts_with("layer_")) refuse("pipeline parallelism");
  const std::optional<FileName> parsed = parse_name(name);
  if (parsed && parsed->part > 0) refuse("model parallelism");
}

// Files of ranks 0, 1, … without holes.
std::vector<Path> in_order(const std::map<int, Path>& by_rank, const Path& folder, std::string_view suffix) {
  std::vector<Path> files;
  std::vector<int> ranks;
  for (const auto& [rank, path] : by_rank) ranks.push_back(rank);
  const std::string there = shortened(fmt::format("{}", fmt::join(ranks, ", ")), 120);
  for (const auto& [rank, path] : by_rank) {
    require(rank == int(files.size()), ErrorKind::data,
            "[deepspeed] {}: the file zero_pp_rank_{}_mp_rank_00{} is missing; there are those of ranks {}",
            folder.string(), files.size(), suffix, there);
    files.push_back(path);
  }
  return files;
}

bool holds_states(const Path& folder) {
  if (!folder_exists(folder)) return false;
  for (const std::string& name : list_folder(folder)) {
    if (is_state_file(name)) return true;
  }
  return false;
}

}  // namespace

std::optional<Path> find_deepspeed(const Path& path) {
  if (holds_states(path)) return path;
  for (const char* pointer : {"latest", "latest_universal"}) {
    if (!file_exists(path / pointer)) continue;
    std::string tag = read_file(path / pointer, 4096);
    while (!tag.empty() && std::isspace(static_cast<unsigned char>(tag.back()))) tag.pop_back();
    require(!tag.empty() && Path(tag).filename() == tag && tag != "." && tag != "..", ErrorKind::data,
            "[deepspeed] {}: got '{}', expected the name of a folder beside it", (path / pointer).string(),
            tag);
    require(holds_states(path / tag), ErrorKind::data,
            "[deepspeed] {}: names {}, where there are no *_states.pt; name another tag's folder",
            (path / pointer).string(), tag);
    return path / tag;
  }
  return std::nullopt;
}

DeepSpeedFiles list_deepspeed(const Path& tag_folder) {
  DeepSpeedFiles files{.folder = tag_folder, .model = {}, .optimizer = {}};
  files.universal = folder_exists(tag_folder / "zero");
  std::map<int, Path> model, optimizer;
  std::optional<Path> whole;
  for (const std::string& name : list_folder(tag_folder)) {
    if (!is_state_file(name)) continue;
    refuse_unsupported(tag_folder, name);
    const std::optional<FileName> parsed = parse_name(name);
    require(parsed && (parsed->rank || !parsed->optimizer), ErrorKind::data,
            "[deepspeed] {}: {} is not a file name that DeepSpeed uses", tag_folder.string(), name);
    if (!parsed->rank) {
      whole = tag_folder / name;
      continue;
    }
    auto& by_rank = parsed->optimizer ? optimizer : model;
    const bool fresh = by_rank.emplace(*parsed->rank, tag_folder / name).second;
    require(fresh, ErrorKind::data,
            "[deepspeed] {}: rank {} has two files, {} and {}; they belong to two runs in one folder",
            tag_folder.string(), *parsed->rank, by_rank[*parsed->rank].filename().string(), name);
  }
  files.optimizer = in_order(optimizer, tag_folder, kOptimizerSuffix);
  files.model = in_order(model, tag_folder, kModelSuffix);
  files.sharded_model = !files.model.empty();
  require(whole || files.sharded_model, ErrorKind::data,
          "[deepspeed] {}: there is no *_model_states.pt; the copy is not complete", tag_folder.string());
  require(!whole || !files.sharded_model, ErrorKind::data,
          "[deepspeed] {}: holds both {} and {}; they belong to two runs in one folder", tag_folder.string(),
          whole ? whole->filename().string() : "",
          files.sharded_model ? files.model[0].filename().string() : "");
  if (whole) files.model = {*whole};
  return files;
}

}  // namespace zeno::checkpoint
